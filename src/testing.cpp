// The compiled runtime: tests of operators without a host program.
#include "opkit/plugin/impl/testing.ipp"
