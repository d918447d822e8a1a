// The compiled runtime: libraries of operators that are loaded while the program runs.
#include "opkit/plugin/impl/elf_file.ipp"
#include "opkit/plugin/impl/shared_object.ipp"
