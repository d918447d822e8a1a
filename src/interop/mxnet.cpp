// Loads the libraries of MXNet's extension interface, compiled once: opkit::mxnet.
#include "opkit/interop/impl/mxnet.ipp"
