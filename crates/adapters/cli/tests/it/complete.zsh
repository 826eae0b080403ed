# Types each line into a zsh on a terminal, presses Tab, and prints what the line is then.
zmodload zsh/zpty
until_seen() {
    local part n
    out=
    for n in {1..1500}; do
        while zpty -r -t z part; do out+=$part; done
        [[ $out == *$1* ]] && return
        sleep 0.02
    done
    print -r -- "no $1: ${(q)out}"
    exit 1
}
zpty z zsh -f -i
zpty -w z "PROMPT= RPROMPT=; unsetopt prompt_sp; autoload -U compinit; compinit -u -D"
zpty -w z 'show() { print -r -- "<""<$BUFFER>"">" }; zle -N show; bindkey "^T" show'
zpty -w z 'source <(syncline completions zsh); print rea""dy'
until_seen $'\nready'
for line in "$@"; do
    zpty -w -n z "$line"$'\t\x14\x15'
    until_seen '>>'
    out=${out##*'<<'}
    print -r -- "${out%%'>>'*}"
done
zpty -d z
