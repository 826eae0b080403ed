// An image for each job, all at once: go run ./jobs DIRECTORY JOB...
package main

/*
#cgo pkg-config: syncline
#include <stdlib.h>
#include <sys/stat.h>
#include <syncline.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"unsafe"
)

// checked returns the library's sentence for a negative errno. A sentence without a handle is the thread's.
func checked(result C.int64_t, handle C.uint64_t) error {
	if result >= 0 {
		return nil
	}
	var text [400]C.char
	C.syncline_error(handle, &text[0], C.size_t(len(text)))
	return errors.New(C.GoString(&text[0]))
}

type entry struct {
	path, contents string
	mode           uint32
}

func add(build C.syncline_build, each entry) error {
	path := C.CString(each.path)
	defer C.free(unsafe.Pointer(path))
	stat := C.struct_syncline_stat{mode: C.uint32_t(each.mode)}
	code := C.syncline_build_add(build, path, &stat, nil, nil, 0)
	if err := checked(C.int64_t(code), build); err != nil {
		return fmt.Errorf("%s: %w", each.path, err)
	}
	if len(each.contents) == 0 {
		return nil
	}
	contents := C.CString(each.contents)
	defer C.free(unsafe.Pointer(contents))
	code = C.syncline_build_write(build, unsafe.Pointer(contents), C.size_t(len(each.contents)))
	return checked(C.int64_t(code), build)
}

// image makes an image of the entries and returns its size.
func image(name string, entries []entry) (int64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path := C.CString(name)
	defer C.free(unsafe.Pointer(path))
	options := C.struct_syncline_build_options{spare_bytes: 16 << 20}
	var build C.syncline_build
	if err := checked(C.int64_t(C.syncline_build_begin(path, &options, &build)), 0); err != nil {
		return 0, err
	}
	for _, each := range entries {
		if err := add(build, each); err != nil {
			C.syncline_build_cancel(build)
			return 0, err
		}
	}
	size := C.syncline_build_finish(build)
	return int64(size), checked(size, 0)
}

func main() {
	jobs := os.Args[2:]
	failed := make([]error, len(jobs))
	var all sync.WaitGroup
	for number, job := range jobs {
		all.Add(1)
		go func(number int, job string) {
			defer all.Done()
			_, failed[number] = image(filepath.Join(os.Args[1], job+".img"), []entry{
				{"/tmp", "", C.S_IFDIR | 01777},
				{"/init", "#!/bin/sh\nexec sh /etc/job\n", C.S_IFREG | 0755},
				{"/etc/job", "echo " + job + "\n", C.S_IFREG | 0644},
			})
		}(number, job)
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(len(jobs), "images")
}
