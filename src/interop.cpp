// The compiled runtime: mapped files and NumPy's format, which need no third-party code.
#include "opkit/interop/impl/mapped_file.ipp"
#include "opkit/interop/impl/npy.ipp"
