# The words of the line up to the cursor: bash's own are split at : and = as well.
_@ID@() {
    local words line=${COMP_LINE:0:COMP_POINT} head found
    read -a words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    head=${words[-1]}
    head=${head%"${head##*[:=]}"}
    COMPREPLY=()
    while IFS= read -r found; do
        [[ $found == *[/=:,] ]] && compopt -o nospace
        found=${found#"$head"}
        [[ $found == *[!a-zA-Z0-9_./,:=@%+-]* ]] && found=$(printf %q "$found")
        COMPREPLY+=("$found")
    done < <("$1" complete -- "${words[@]:1}" 2>/dev/null)
}
complete -o default -o bashdefault -F _@ID@ @PROGRAM@
