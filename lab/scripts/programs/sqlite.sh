#!/bin/sh
# The sqlite3 shell in every journal mode. In those that survive a crash the serving process is
# killed while rows are inserted: the database is whole, and no row is missing whose insert was
# answered (EXTRA: FULL does not sync the removal of a journal).
. "$(dirname "$0")/lib.sh"
need sqlite3 sqlite3
begin sqlite 256M
kills=1
[ -n "$long" ] && kills=20

whole() {
    said=$(sqlite3 "$1" 'PRAGMA integrity_check')
    [ "$said" = ok ] || fail "$1: integrity_check says $said"
}

writer=
end_programs() { slain $writer; writer=; }

# rows FIRST: endless inserts, each followed by its number as the answer.
rows() {
    i=$1
    while echo "INSERT INTO t VALUES ($i, randomblob(600)); SELECT $i;"; do i=$((i + 1)); done
}

for mode in delete truncate persist wal; do
    db=$mnt/$mode.db
    # EXTRA: a kill before the first insert must not bring the journal of this transaction back.
    sqlite3 "$db" "PRAGMA journal_mode=$mode; PRAGMA synchronous=EXTRA;
        CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB)" >/dev/null
    kill=0
    while [ "$kill" -lt "$kills" ]; do
        first=$(($(sqlite3 "$db" 'SELECT coalesce(max(k), 0) FROM t') + 1))
        : >"$work/answers"
        { echo "PRAGMA journal_mode=$mode; PRAGMA synchronous=EXTRA;"; rows "$first"; } 2>/dev/null |
            stdbuf -oL sqlite3 -bail "$db" >"$work/answers" 2>/dev/null &
        writer=$!
        pause 100 700
        strike
        whole "$db"
        # The last line may be cut.
        answered=$(grep -c '^[0-9][0-9]*$' "$work/answers" || true)
        there=$(sqlite3 "$db" "SELECT count(*) FROM t WHERE k >= $first")
        # SQLite answers although it cannot open the directory to sync the journal's removal: a
        # server that dies just there takes one row with it.
        [ "$mode" != delete ] || there=$((there + 1))
        [ "$there" -ge "$answered" ] || fail "$mode: $answered rows were answered, $there are there"
        kill=$((kill + 1))
    done
done

for mode in memory off; do
    db=$mnt/$mode.db
    sqlite3 "$db" "PRAGMA journal_mode=$mode; CREATE TABLE t (v BLOB);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
        INSERT INTO t SELECT randomblob(600) FROM n; DELETE FROM t WHERE rowid % 3 = 0; VACUUM" \
        >/dev/null
    whole "$db"
done
finish
