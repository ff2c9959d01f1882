module trimaran.test/worker

go 1.26.0
