// The compiled runtime: tests of a library's operators without a host program.
#include "opkit/plugin/impl/testing.ipp"
