// The compiled runtime: loads libraries of operators at run time. In a library it describes the
// operators of its registries to the host.
#include "opkit/plugin/export/impl/export_gradients.ipp"
#include "opkit/plugin/export/impl/export_graphs.ipp"
#include "opkit/plugin/export/impl/export_layouts.ipp"
#include "opkit/plugin/export/impl/export_operators.ipp"
#include "opkit/plugin/export/impl/export_partitioners.ipp"
#include "opkit/plugin/impl/library.ipp"
#include "opkit/plugin/load/impl/shared_object.ipp"
