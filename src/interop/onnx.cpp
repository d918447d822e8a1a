// The reader of ONNX models, compiled once: opkit::onnx.
#include "opkit/interop/impl/onnx.ipp"
