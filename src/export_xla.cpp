// The compiled runtime: the export of operators to XLA.
#include "opkit/export/impl/xla.ipp"
