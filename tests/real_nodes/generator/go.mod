module trimaran.test/generator

go 1.26.0
