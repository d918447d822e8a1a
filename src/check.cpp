// The compiled runtime: the checker of operators.
#include "opkit/op/impl/check.ipp"
#include "opkit/base/impl/child_process.ipp"
#include "opkit/op/check/impl/check_data.ipp"
#include "opkit/op/check/impl/input_finder.ipp"
