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

# The newest version of glibc that one of the files needs.
newest_glibc() {
    objdump -T "$@" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -n 1
}
