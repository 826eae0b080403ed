#compdef @PROGRAM@
_@ID@() {
    local -a found part
    found=("${(@f)$("${words[1]}" complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    part=("${(@M)found:#*[/=:,]}")
    found=("${(@)found:#*[/=:,]}")
    (( $#part )) && compadd -S '' -a part
    (( $#found )) && [[ -n $found[1] ]] && compadd -a found
    (( $compstate[nmatches] )) || _files
}
if [ "$funcstack[1]" = "_@ID@" ]; then
    _@ID@ "$@"
else
    compdef _@ID@ @PROGRAM@
fi
