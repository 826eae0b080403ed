complete -c @PROGRAM@ -a '(@PROGRAM@ complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
