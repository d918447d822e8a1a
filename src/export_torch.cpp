// The compiled runtime: the export of operators to PyTorch.
#include "opkit/export/impl/torch.ipp"
