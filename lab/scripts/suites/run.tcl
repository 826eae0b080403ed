# Runs a test of SQLite whose databases are in an image: testfixture run.tcl TEST. Tcl's commands for files see the
# files in the image as well; vfs.c has the commands that reach them.

# Tests run in a directory that the suite makes.
file mkdir testdir
set suite_root [file normalize testdir]
load {} Suite
sqlite3 db :memory:
db close

set suite_parts 0
# Channels on copies: name, copy, whether it was opened for writing.
array set suite_open {}

rename file suite_file
rename open suite_open_host
rename close suite_close_host
rename flush suite_flush_host
rename glob suite_glob
rename source suite_source

# The full name of what may be in the image; empty for others.
proc suite_name {name} {
  set full [suite_file normalize $name]
  if {[string first $::suite_root/ $full] != 0} {return ""}
  return $full
}

# The full name of what is in the image; empty for others.
proc suite_there {name} {
  set full [suite_name $name]
  if {$full eq "" || [suite_size $full] < 0} {return ""}
  return $full
}

# True if a file that Tcl makes belongs into the image.
proc suite_is_data {name} {
  set full [suite_name $name]
  if {$full eq ""} {return 0}
  expr {[suite_file extension $full] ni {.tcl .txt .sql .csv .out .log .test .lock}}
}

# A copy on the host.
proc suite_copy {full} {
  set copy [suite_file join $::suite_root .copy[incr ::suite_parts]]
  set to [suite_open_host $copy w]
  fconfigure $to -translation binary
  if {[suite_size $full] >= 0} {puts -nonewline $to [suite_get $full]}
  suite_close_host $to
  return $copy
}

proc suite_back {copy full} {
  set from [suite_open_host $copy r]
  fconfigure $from -translation binary
  suite_put $full [read $from]
  suite_close_host $from
}

proc open {name {access r} args} {
  if {[string index $name 0] eq "|"} {return [suite_open_host $name $access {*}$args]}
  set full [suite_there $name]
  set writes [expr {$access ni {r RDONLY rb}}]
  if {$full eq ""} {
    if {!$writes || ![suite_is_data $name] || $access in {r+ rb+ r+b RDWR}} {
      set host [suite_name $name]
      return [suite_open_host $name $access {*}$args]
    }
    set full [suite_name $name]
  }
  set copy [suite_copy $full]
  set channel [suite_open_host $copy $access {*}$args]
  set ::suite_open($channel) [list $full $copy $writes]
  return $channel
}

proc close {channel args} {
  suite_close_host $channel {*}$args
  if {[info exists ::suite_open($channel)]} {
    lassign $::suite_open($channel) full copy writes
    unset ::suite_open($channel)
    if {$writes} {suite_back $copy $full}
    suite_file delete $copy
  }
  return ""
}

# What a test has flushed SQLite sees, also while the channel is open.
proc flush {channel} {
  suite_flush_host $channel
  if {[info exists ::suite_open($channel)]} {
    lassign $::suite_open($channel) full copy writes
    if {$writes} {suite_back $copy $full}
  }
}

proc file {what args} {
  set name [lindex $args end]
  switch -glob -- $what {
    exists - isfile - readable - writable {
      if {[suite_there $name] ne ""} {return 1}
      # A mark without a file.
      if {[suite_is_data $name] && [suite_file isfile $name] && [suite_file size $name] == 0} {return 0}
    }
    size {
      set full [suite_there $name]
      if {$full ne ""} {return [suite_size $full]}
    }
    delete {
      set names [lmap one $args {expr {$one in {-force --} ? [continue] : $one}}]
      foreach one $names {
        set full [suite_name $one]
        if {$full ne "" && ![suite_file isdirectory $full]} {suite_delete $full}
      }
    }
    copy - rename {
      lassign [lrange $args end-1 end] from to
      set full [suite_there $from]
      if {$full ne ""} {
        set into [suite_name $to]
        if {[suite_file isdirectory $to]} {set into [suite_file join $into [suite_file tail $from]]}
        if {"-force" ni $args && [suite_there $into] ne ""} {
          error "error copying \"$from\" to \"$to\": file already exists"
        }
        suite_put $into [suite_get $full]
        if {$what eq "rename"} {suite_delete $full}
        return ""
      }
      if {[suite_is_data $to] && ![suite_file isdirectory $from] && [suite_name $from] eq ""} {
        set channel [suite_open_host $from r]
        fconfigure $channel -translation binary
        suite_put [suite_name $to] [read $channel]
        suite_close_host $channel
        return ""
      }
    }
  }
  uplevel 1 [list suite_file $what {*}$args]
}

proc glob {args} {
  set found [uplevel 1 [list suite_glob {*}$args]]
  lmap name $found {
    if {[suite_is_data $name] && [suite_file isfile $name] && [suite_file size $name] == 0 && [suite_there $name] eq ""} continue
    set name
  }
}

# Commands in C that read files of the host.
foreach {name writes} {hexio_read 0 hexio_write 1 md5file 0} {
  rename $name suite_$name
  proc $name {name args} [format {
    set full [suite_there $name]
    if {$full eq "" && %2$d && [suite_is_data $name]} {set full [suite_name $name]}
    if {$full eq ""} {return [suite_%1$s $name {*}$args]}
    set copy [suite_copy $full]
    set answer [suite_%1$s $copy {*}$args]
    if {%2$d} {suite_back $copy $full}
    suite_file delete $copy
    return $answer
  } $name $writes]
}

# The process that crashes opens the image, so this one lets go of it.
rename exec suite_exec
proc exec {args} {
  if {"crash.tcl" ni $args || [info commands ::db] eq ""} {return [uplevel 1 [list suite_exec {*}$args]]}
  set files {0 main test.db}
  catch {set files [db eval {PRAGMA database_list}]}
  db close
  set code [catch {uplevel 1 [list suite_exec {*}$args]} answer options]
  uplevel #0 [list sqlite3 db [lindex $files 2]]
  foreach {number name file} [lrange $files 3 end] {
    if {$name ne "temp"} {catch {db eval "ATTACH '$file' AS $name"}}
  }
  return -options $options $answer
}

proc source {args} {uplevel 1 [list suite_source {*}$args]}

# One process has the image: tests for several connections use those of this process, as under valgrind.
set G(valgrind) 1

set argv0 [lindex $argv 0]
set argv [lrange $argv 1 end]
source $argv0
