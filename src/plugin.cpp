// The compiled runtime: libraries of operators that are loaded while the program runs, and the
// other end of it, the operators of a library's registries handed over to its host.
#include "opkit/plugin/export/impl/export_gradients.ipp"
#include "opkit/plugin/export/impl/export_graphs.ipp"
#include "opkit/plugin/export/impl/export_layouts.ipp"
#include "opkit/plugin/export/impl/export_operators.ipp"
#include "opkit/plugin/export/impl/export_partitioners.ipp"
#include "opkit/plugin/impl/library.ipp"
#include "opkit/plugin/load/impl/shared_object.ipp"
