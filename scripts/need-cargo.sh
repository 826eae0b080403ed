#!/bin/sh
# Says in one line what to do where cargo is missing or too old.
need=1.95
get="curl -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c clippy,rustfmt"
if ! command -v cargo >/dev/null 2>&1; then
    echo "cargo is missing; install Rust $need or newer as your user: $get" >&2
    exit 1
fi
have=$(rustc --version | cut -d' ' -f2)
if [ "$(printf '%s\n%s\n' "$need" "$have" | sort -V | head -n 1)" != "$need" ]; then
    echo "Rust $have is too old, $need is needed; run: rustup update stable" >&2
    exit 1
fi
