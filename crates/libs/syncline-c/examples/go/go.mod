module example.invalid/syncline

go 1.21
