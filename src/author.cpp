// The compiled runtime: what a library of operators needs of it, without the runtime that runs
// them.
#include "opkit/op/abi/impl/abi_attributes.ipp"
#include "opkit/op/abi/impl/op_conversion.ipp"
#include "opkit/plugin/export/impl/library_export.ipp"
#include "opkit/plugin/export/impl/library_partitioner.ipp"
