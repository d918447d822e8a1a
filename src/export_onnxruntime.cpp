// The compiled runtime: the export of operators to ONNX Runtime.
#include "opkit/export/impl/onnxruntime.ipp"
#include "opkit/export/onnxruntime/impl/ort_attributes.ipp"
#include "opkit/export/onnxruntime/impl/ort_signature.ipp"
