// The compiled runtime: the part that a library of operators needs, without the part that runs
// operators.
#include "opkit/op/boundary/convert/impl/abi_attributes.ipp"
#include "opkit/op/boundary/convert/impl/op_conversion.ipp"
#include "opkit/op/function/impl/state_of_inputs.ipp"
#include "opkit/plugin/export/impl/library_export.ipp"
#include "opkit/plugin/export/impl/library_partitioner.ipp"
