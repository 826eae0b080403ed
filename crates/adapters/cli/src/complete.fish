# The token as it is typed has backslashes and quotes, of which the last may be open.
function __@ID@_complete
    set -l token (commandline -ct)
    set -l word (string unescape -- $token; or string unescape -- $token"'"; or string unescape -- $token'"'; or echo -- $token)
    set -l found (@PROGRAM@ complete -- (commandline -opc)[2..-1] $word 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path $token
    end
end
complete -c @PROGRAM@ -f -a '(__@ID@_complete)'
