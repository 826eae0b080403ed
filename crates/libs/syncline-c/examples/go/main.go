// An image written and read from Go, through cgo: go run . IMAGE.
package main

/*
#cgo pkg-config: syncline
#include <stdlib.h>
#include <syncline.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// checked returns the library's sentence for a negative errno.
func checked(result C.int64_t, handle C.uint64_t) error {
	if result >= 0 {
		return nil
	}
	var text [400]C.char
	C.syncline_error(handle, &text[0], C.size_t(len(text)))
	return errors.New(C.GoString(&text[0]))
}

func run(image string) error {
	path := C.CString(image)
	defer C.free(unsafe.Pointer(path))
	if err := checked(C.int64_t(C.syncline_mkfs(path, 32<<20, nil, 0)), 0); err != nil {
		return err
	}
	var volume C.syncline_volume
	if err := checked(C.int64_t(C.syncline_open(path, nil, &volume)), 0); err != nil {
		return err
	}
	name := C.CString("/today")
	defer C.free(unsafe.Pointer(name))
	var file C.syncline_file
	flags := C.uint(C.SYNCLINE_READ | C.SYNCLINE_WRITE | C.SYNCLINE_CREATE)
	if err := checked(C.int64_t(C.syncline_file_open(volume, name, flags, 0644, &file)), volume); err != nil {
		return err
	}
	bytes := []byte("hello from Go\n")
	done := C.syncline_file_pwrite(file, unsafe.Pointer(&bytes[0]), C.size_t(len(bytes)), 0)
	if err := checked(done, file); err != nil {
		return err
	}
	if err := checked(C.int64_t(C.syncline_file_sync(file, 0)), file); err != nil {
		return err
	}
	back := make([]byte, 64)
	done = C.syncline_file_pread(file, unsafe.Pointer(&back[0]), C.size_t(len(back)), 0)
	if err := checked(done, file); err != nil {
		return err
	}
	fmt.Print(string(back[:done]))
	if err := checked(C.int64_t(C.syncline_close(volume)), volume); err != nil {
		return err
	}
	fmt.Println("closed:", checked(C.int64_t(C.syncline_mkdir(volume, name, 0755)), 0))
	return nil
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
