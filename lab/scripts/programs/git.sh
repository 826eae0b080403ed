#!/bin/sh
# git on a mount: commits, clone, gc, fsck; the serving process is killed while it commits.
. "$(dirname "$0")/lib.sh"
need git git
begin git 512M
HOME=$work
export HOME
git config --global user.name Test
git config --global user.email test@example.org
git config --global safe.directory '*'
git config --global init.defaultBranch main
# All files that a commit needs are durable when git answers.
git config --global core.fsync all
git config --global gc.auto 0
commits=5
kills=0
[ -n "$long" ] && commits=40 && kills=20

one=$mnt/one
git init -q "$one"
commit() {
    for file in 1 2 3 4 5 6 7 8; do
        seq "$1" $(($1 + 200 * file)) >"$one/f$file" || return
    done
    # git syncs the branch's new file, renames it, and does not sync that.
    git -C "$one" add . && git -C "$one" commit -q -m "$1" && sync "$one/.git/refs/heads"
}
nr=0
while [ "$nr" -lt "$commits" ]; do
    nr=$((nr + 1))
    commit "$nr"
done
git clone -q --no-hardlinks "$one" "$mnt/two"
git -C "$mnt/two" gc -q --aggressive
git -C "$mnt/two" fsck --strict --no-progress >/dev/null
diff -r --exclude=.git "$one" "$mnt/two"

# What `git init` makes is not synced by git, whatever core.fsync says, and never written again: HEAD, config.
find "$mnt" -exec sync {} +
writer=
end_programs() { slain $writer; writer=; }
kill=0
while [ "$kill" -lt "$kills" ]; do
    echo "$nr" >"$work/answers"
    (
        while commit $((nr + 1)); do
            nr=$((nr + 1))
            echo "$nr" >>"$work/answers"
        done
    ) >/dev/null 2>&1 &
    writer=$!
    pause 200 1500
    strike
    rm -f "$one/.git/index.lock" "$one/.git/HEAD.lock" "$one/.git/refs/heads/main.lock"
    git -C "$one" fsck --strict --no-progress >"$work/said" 2>&1 ||
        fail "kill $kill: git fsck: $(cat "$work/said")"
    answered=$(tail -n 1 "$work/answers")
    nr=$(git -C "$one" log -1 --format=%s)
    [ "$nr" -ge "$answered" ] || fail "kill $kill: commit $answered was answered, the last is $nr"
    git -C "$one" reset -q --hard
    kill=$((kill + 1))
done
finish
