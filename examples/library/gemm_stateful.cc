// C = A * B by an object that keeps data between its runs: a copy of B with each column in a row,
// so that both factors are read in order. Its gradient uses the same copy.
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -Iinclude examples/library/gemm_stateful.cc -o libgemm_stateful.so
#include "gemm.hpp"

using namespace opkit;

class PackedGemm final : public StatefulOp {
 public:
  Status Forward(std::span<const OpTensor> in, std::span<OpTensor> out, OpResource& res) override {
    Pack(in[1]);
    Multiply(1, in[0], Columns().Transposed(), out[0], res);
    return SUCCESS;
  }
  Status Backward(std::span<const OpTensor> in, std::span<OpTensor> out, OpResource& res) override {
    if (rows_ < 0) return Status::Failure("the gradient is asked for before the first run");
    Multiply(1, in[0], Columns(), out[0], res);
    Multiply(1, Matrix(in[1]).Transposed(), in[0], out[1], res);
    return SUCCESS;
  }

 private:
  void Pack(Matrix b) {
    rows_ = b.rows;
    columns_ = b.columns;
    packed_.clear();  // keeps its memory for this run
    for (int64_t j = 0; j < columns_; ++j)
      for (int64_t k = 0; k < rows_; ++k) packed_.push_back(b.data[k * columns_ + j]);
  }
  Matrix Columns() const { return {packed_.data(), columns_, rows_}; }

  std::vector<float> packed_;
  int64_t rows_ = -1, columns_ = 0;
};

int CreateState(const AttrMap&, StatefulOp** state) {  // the host destroys it
  *state = new PackedGemm;
  return SUCCESS;
}

int ParseAttrs(const AttrMap&, int* num_in, int* num_out) {
  *num_in = 2;
  *num_out = 1;
  return SUCCESS;
}
int InferType(const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
  in[0] = in[1] = out[0] = DType::kFloat32;
  return SUCCESS;
}
int InferShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  if (in[0].size() != 2 || in[1].size() != 2 || in[0][1] != in[1][0]) {
    OPKIT_ERROR_MSG << "cannot multiply " << in[0] << " by " << in[1];
    return FAIL;
  }
  out[0] = {in[0][0], in[1][1]};
  return SUCCESS;
}

REGISTER_OP(state_gemm)
    .setCreateOpState(CreateState, "cpu")
    .setParseAttrs(ParseAttrs)
    .setInferType(InferType)
    .setInferShape(InferShape)
    .doc("A * B, with a copy of B that is read in order.");
