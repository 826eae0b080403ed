# Shell functions of the packaging scripts. Sourced in the root of the project.

version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# The oldest glibc that the packages run with: Debian 11's.
glibc=2.31
# The limit of the stripped `syncline`.
binary_mb_max=6
dist=target/dist
dist_build=target/dist-build

say() { echo "dist: $*"; }

# A virtual environment with the tools of requirements.txt; fails where it cannot be made.
tools() {
    venv=target/dist-tools
    if ! cmp -s packaging/requirements.txt "$venv/requirements.txt"; then
        rm -rf "$venv"
        python3 -m venv "$venv" >/dev/null 2>&1 || return 1
        "$venv/bin/pip" install -q -r packaging/requirements.txt || return 1
        cp packaging/requirements.txt "$venv/requirements.txt"
    fi
    PATH="$(pwd)/$venv/bin:$PATH"
    export PATH
}

# The standard library of a target: rustup's, else it is built from its source, by $build_std as options of cargo, with
# RUSTC_BOOTSTRAP=1. Fails if neither is to be had.
standard_library() { # TARGET
    build_std=
    rustup target add "$1" >/dev/null 2>&1 && return
    rustup component add rust-src >/dev/null 2>&1 || return 1
    build_std="-Z build-std=std,panic_abort"
}

# The newest version of glibc that one of the files needs.
newest_glibc() {
    objdump -T "$@" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -n 1
}
