#!/bin/sh
# Tries the documents below ROOT, in a checkout (tests of the programs) or as packages install them (test-dist.sh):
#
#   try-documents.sh links ROOT                    every link leads to a file
#   try-documents.sh syncline|syncline-lab ROOT    command lines of the program run as they stand, in their order
#
# The programs are those of PATH. The lines run in the current directory, which must be empty. MOUNTS=no leaves out those
# of mounts.
set -eu
what=$1
root=$2

links() {
    find "$root" -name target -prune -o -name '*.md' -print | while IFS= read -r document; do
        grep -o '\](\([^) `]*\))' "$document" | sed -e 's/^](//' -e 's/)$//' -e 's/#.*//' | while IFS= read -r target; do
            case $target in '' | *://*) continue ;; esac
            [ -e "$(dirname "$document")/$target" ] || echo "$document: $target leads nowhere"
            echo link
        done
    done >links
    ! grep -v '^link$' links || exit 1
    count=$(wc -l <links)
    [ "$count" -gt 100 ] || { echo "only $count links" >&2 && exit 1; }
    echo "$count links"
}

# Parts of lines that do not run here, and why.
left_out() {
    case $what in
    syncline) cat <<'END' ;;
skopeo|the network
docker|the network and a service of containers
oci:debian|an image that skopeo fetches; layers.rs makes one
win.vhdx|a disk of another program; the image crate's tests read one
vm.qcow2|a disk of another program; several.rs
serve --nfs|runs until Ctrl-C; serve.rs
/srv/card.log|a path of the reader's machine; buffer.rs
buffer_log=card.log|a log that exists; buffer.rs
buffer attach|a device; buffer.rs
buffer status|a device; buffer.rs
buffer relax|a mounted ext4 on a device; buffer.rs
buffer zeros FILE ...|files of the reader; buffer.rs
ctl |a mount or buffer of the reader; ctl.rs
syncline top DIR|runs until q; top.rs
aria2c|the network
syncline shell disk.img|a terminal; shell.rs
END
    syncline-lab) cat <<'END' ;;
--runtime 60|minutes of real time; bench.rs
latency DIR --quick|half a minute of real time; latency.rs
probe /mnt/card|minutes of a real card; reports.rs probes a model
lifetime --watch|root, and an hour of a device; lifetime.rs
advise /var/lib|root, and an hour of a file system; advise.rs
flash serve|runs until Ctrl-C, as root; flash.rs
trace watch|root, and days of devices; trace/watch.rs
bench fjord|half a minute of processor time; reports.rs runs one application
reproduce --html papers.html|minutes of processor time; lab/tests/reproduce
reproduce --full|hours of processor time
--real-time|minutes of real time; latency.rs
bench applications --device all|minutes; lab/tests/bench/applications.rs
bench android-day|minutes; lab/tests/bench/aged.rs
--executor tcp|a scheduler of Dask; test_sweeps.py of the Python package
END
    esac
}

# Files that the documents take for granted.
prepare() {
    owner=root_owner=$(id -u):$(id -g)
    mkdir card DIR
    syncline mkfs --size 64M -E "$owner" card.img
    if [ "$what" = syncline ]; then
        mkdir disk rootfs rootfs/etc etc bin home
        cp /bin/true bin/PROGRAM
        echo x >etc/x
        echo 127.0.0.1 >rootfs/etc/fstab
        : >map
        tar -cf rootfs.tar rootfs
        tar -czf base.tar.gz rootfs
        tar -cf - etc | zstd -q >app.tar.zst
        tar -cJf rootfs.tar.xz rootfs
        head -c 300000 /dev/zero >pad
        tar -cM -L 200 -f vol1.tar -f vol2.tar pad
        syncline mkfs --size 64M -E "$owner" disk.img
        syncline cp -r rootfs/etc disk.img:/
        syncline mkdir disk.img:/home
        xz -0k disk.img
        truncate -s 64M sdcard.img
        printf 'label: gpt\n,8M\n,\n' | sfdisk -q sdcard.img
        syncline mkfs --size 32M part.img
        dd if=part.img of=sdcard.img bs=1M seek=9 conv=notrunc status=none
        head -c 65536 /dev/zero >data
        syncline flashlite write film.log data >said
        return
    fi
    ln -s "$root/samples" samples
    for trace in mail disk day; do cp samples/mail.blocks.trace $trace.trace; done
    cp samples/mail.pages.trace app.trace
    cat >plan.toml <<'END'
what = "cache"
traces = ["samples/*.pages.trace"]
policies = ["lru", "clock"]
sizes = ["64K", "10%"]
devices = ["sd-2012"]
options = ["", "fsync"]
END
    syncline-lab bench create --operations 5 --size 64 --json before.json
    syncline-lab bench create --operations 5 --size 64 --seed 2 --json after.json
    # Events of a mount.
    syncline mount -o trace=app card.img card
    head -c 3000000 /dev/zero >card/film.iso
    syncline umount card
    cp app.events run.events
}

# Lines in blocks of code that call the program, each behind DOCUMENT:NUMBER and a space.
lines() {
    for document in "$root/README.md" "$root/samples/README.md" "$root"/docs/*.md "$root"/docs/*/*.md; do
        [ -f "$document" ] || continue
        awk -v at="${document#"$root/"}" -v program="$what" '
            FNR == 1 { fenced = 0 }
            /^```/ { fenced = !fenced; next }
            { sub(/^\$ /, ""); sub(/^sudo /, "") }
            fenced && (index($0, program " ") == 1 || index($0, "| " program " ")) { print at ":" FNR " " $0 }
        ' "$document"
    done
}

reason() { # LINE
    left_out | while IFS='|' read -r part why; do
        case $1 in *"$part"*) echo "$why" && break ;; esac
    done
}

# Documents mount, make and sweep again under the same names.
clear_names() { # LINE
    case $1 in *'syncline mount'* | *'import '*)
        for directory in disk card; do syncline umount "$HOME/$directory" || :; done
        rm -f r*.img
        ;;
    esac
    case $1 in *' sweep '*--resume*) ;; *' sweep '*) rm -rf results ;; esac
}

run_all() {
    HOME=$(pwd)
    PATH=$HOME/bin:$PATH:/usr/sbin:/sbin
    export HOME PATH
    trap 'clear_names "syncline mount" >said 2>&1' EXIT
    prepare >said
    lines >lines
    left_out | while IFS='|' read -r part _; do
        grep -qF -e "$part" lines || { echo "$part is in no document: take it out" >&2 && exit 1; }
    done
    count=0
    while IFS= read -r found; do
        line=${found#* }
        [ -z "$(reason "$line")" ] || continue
        case ${MOUNTS:-yes}:$line in no:'syncline mount'* | no:'syncline status'* | no:'syncline umount'*) continue ;; esac
        clear_names "$line" >said 2>&1
        # A path of the reader's machine.
        line=$(printf '%s\n' "$line" | sed 's|/mnt/card|DIR|g')
        sh -ec "$line" </dev/null >said 2>&1 || {
            echo "${found%% *}: $line:" >&2
            cat said >&2
            exit 1
        }
        count=$((count + 1))
    done <lines
    [ $count -gt 18 ] || { echo "only $count lines ran" >&2 && exit 1; }
    echo "$what: $count lines of the documents ran"
}

if [ "$what" = links ]; then links; else run_all; fi
