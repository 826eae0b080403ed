# Functions of the scripts that install. Sourced with PREFIX DESTDIR BUILD as arguments.
prefix=$1 destdir=$2 build=$3
root=$destdir$prefix

put() { # MODE FILE TARGET
    install -D -m "$1" "$2" "$root/$3"
}

# A program with the pages and completions that it prints.
program() { # NAME
    put 755 "$build/$1" "bin/$1"
    mkdir -p "$root/share/man/man1" "$root/share/bash-completion/completions" \
        "$root/share/fish/vendor_completions.d" "$root/share/zsh/vendor-completions"
    "$build/$1" man --all "$root/share/man/man1"
    "$build/$1" completions bash >"$root/share/bash-completion/completions/$1"
    "$build/$1" completions fish >"$root/share/fish/vendor_completions.d/$1.fish"
    "$build/$1" completions zsh >"$root/share/zsh/vendor-completions/_$1"
}

# A systemd unit, which names the program by its full path; of the system, or of each user.
unit() { # FILE [user]
    to=lib/systemd/${2:-system}/$(basename "$1")
    put 644 "$1" "$to"
    sed -i "s|/usr/bin/syncline|$prefix/bin/syncline|g" "$root/$to"
}
