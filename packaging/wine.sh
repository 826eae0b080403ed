# Functions of scripts that run programs of Windows under Debian's Wine. Sourced.

wine=/usr/lib/wine/wine64

# Names what is missing for Wine and the stub below, each after a space.
wine_missing() {
    for program in x86_64-w64-mingw32-gcc $wine; do
        command -v $program >/dev/null 2>&1 || printf ' %s' $program
    done
}

# Rust takes random numbers from a library of Windows that Wine 8 lacks: a stub of it beside the program.
wine_stub() { # FOLDER
    printf '%s\n' '#include <windows.h>' 'BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);' \
        '__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE to, SIZE_T len) { return SystemFunction036(to, len); }' |
        x86_64-w64-mingw32-gcc -shared -x c -o "$1/bcryptprimitives.dll" - -ladvapi32
}
