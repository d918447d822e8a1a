// The compiled runtime: mapped files, which need no third-party code.
#include "opkit/interop/impl/mapped_file.ipp"
