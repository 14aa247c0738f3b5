# Kills what is left of a test bed and removes its folder. Reads a pipe whose other end only the
# bed holds: the line "done" is an orderly end, the end of the pipe means that its owner died.
#
# $1: the environment entry that marks the bed's processes; a recycled process id harms no other.
# $2: the bed's folder.
trap '' HUP INT TERM
read -r word
# A child that was being forked when its parent died shows its mark a moment later: look until
# there was nothing a few times in a row. After an orderly end one look is enough.
calm=5
[ "$word" = done ] && calm=1
tries=0
while [ "$calm" -gt 0 ] && [ "$tries" -lt 200 ]; do
    left=$(grep -lszxF -e "$1" /proc/[0-9]*/environ | tr -dc '0-9\n')
    if [ -n "$left" ]; then
        kill -KILL $left 2>/dev/null
    else
        calm=$((calm - 1))
    fi
    tries=$((tries + 1))
    [ "$calm" -gt 0 ] && sleep 0.03
done
rm -rf -- "$2"
