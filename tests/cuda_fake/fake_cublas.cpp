// cuBLASLt made of loops on the streams of the fake runtime: the functions that the backend
// "cublas" calls. Wrong arguments abort with a message.
#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "fake_elements.hpp"
#include "fake_libraries.hpp"
#include "fake_runtime.hpp"

namespace {

[[noreturn]] void Refuse(const char* what) {
  std::fprintf(stderr, "fake cuBLAS: %s\n", what);
  std::abort();
}
void Require(bool condition, const char* what) {
  if (!condition) Refuse(what);
}

constexpr uint64_t kDesc = 0xde5c, kLayout = 0x1a70, kPreference = 0x93ef, kAlgo = 0xa190;
constexpr uint64_t kWorkspace = 4096;  // what an algorithm needs
constexpr uint64_t kWorkspaceAlignment = 256;

// The contents of the opaque structs.
struct Desc {
  uint64_t kind;
  int32_t compute, scale, trans_a, trans_b;
  uint32_t epilogue;
  const void* bias;
};
struct Layout {
  uint64_t kind, rows, cols;
  int64_t ld, stride;
  int32_t type, batch;
};
struct Preference {
  uint64_t kind, workspace;
  uint32_t alignments[4], reductions;
};
struct Algo {
  uint64_t kind, problem, workspace;
  uint32_t alignments[4];
  uint32_t bias_alignment;
  int32_t number;  // in the list of the heuristic, from 1
};

template <class T, class Opaque>
T Read(const Opaque* opaque, uint64_t kind, const char* what) {
  static_assert(sizeof(T) <= sizeof(Opaque));
  Require(opaque, what);
  T value;
  std::memcpy(&value, opaque, sizeof(T));
  Require(value.kind == kind, what);
  return value;
}
template <class T, class Opaque>
void Write(Opaque* opaque, const T& value) {
  std::memset(opaque, 0, sizeof(Opaque));
  std::memcpy(opaque, &value, sizeof(T));
}
template <class T>
void Take(T* to, const void* from, size_t size, const char* what) {
  Require(from && size == sizeof(T), what);
  std::memcpy(to, from, size);
}

struct State {
  std::mutex mutex;
  std::set<cublasLtHandle_t> handles;
  std::vector<fake::CublasCall> calls;
  cublasStatus_t failure = CUBLAS_STATUS_SUCCESS;
  int algorithms = 8;
};
State& state() {
  static auto* state = new State;
  return *state;
}
void RequireHandle(cublasLtHandle_t handle) {
  std::lock_guard lock(state().mutex);
  Require(state().handles.contains(handle), "an unknown handle");
}

uint32_t AlignmentOf(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}
opkit::DType DTypeOf(int32_t type) {
  switch (type) {
    case CUDA_R_64F:
      return opkit::DType::kFloat64;
    case CUDA_R_32F:
      return opkit::DType::kFloat32;
    case CUDA_R_16F:
      return opkit::DType::kFloat16;
    case CUDA_R_16BF:
      return opkit::DType::kBFloat16;
    default:
      Refuse("a type that the backend does not use");
  }
}

// The operands of a product: those of an algorithm and of a call must be equal.
struct Problem {
  Desc desc;
  Layout a, b, c, d;

  Problem(cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t of_a, cublasLtMatrixLayout_t of_b,
          cublasLtMatrixLayout_t of_c, cublasLtMatrixLayout_t of_d)
      : desc(Read<Desc>(op, kDesc, "no product")),
        a(Read<Layout>(of_a, kLayout, "no layout of A")),
        b(Read<Layout>(of_b, kLayout, "no layout of B")),
        c(Read<Layout>(of_c, kLayout, "no layout of C")),
        d(Read<Layout>(of_d, kLayout, "no layout of D")) {
    for (const Layout* layout : {&a, &b, &c, &d}) {
      Require(layout->rows > 0 && layout->cols > 0, "an empty matrix");
      Require(layout->ld >= static_cast<int64_t>(layout->rows),
              "a leading dimension below the rows");
      Require(layout->batch == d.batch && layout->batch > 0, "different batches");
    }
    Require(b.type == a.type && c.type == d.type, "matrices of several types");
    Require(d.type == a.type || (d.type == CUDA_R_32F && a.type != CUDA_R_64F),
            "a result of another type");
    Require(d.batch == 1 || d.stride >= d.ld * static_cast<int64_t>(d.cols),
            "matrices of D that overlap");
    Require(m() == d.rows && n() == d.cols && inner_b() == k(), "matrices that do not fit");
    Require(c.rows == d.rows && c.cols == d.cols, "C is not like D");
    const bool is_double = d.type == CUDA_R_64F;
    Require(desc.compute == (is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F),
            "a compute type that does not fit, or rounds to TF32");
    Require(desc.scale == (is_double ? CUDA_R_64F : CUDA_R_32F), "another scale type");
    Require(!is_double || desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT, "an epilogue of float64");
    Require(has_bias() == (desc.bias != nullptr),
            "a bias without its epilogue, or without a pointer");
    Require(!has_bias() || d.batch == 1, "a bias of a batch");
    switch (desc.epilogue & ~uint32_t{CUBLASLT_EPILOGUE_BIAS}) {
      case 0:  // a bias alone
      case CUBLASLT_EPILOGUE_DEFAULT:
      case CUBLASLT_EPILOGUE_RELU:
      case CUBLASLT_EPILOGUE_GELU:
        break;
      default:
        Refuse("an epilogue that the backend does not use");
    }
  }
  uint64_t m() const { return desc.trans_a == CUBLAS_OP_N ? a.rows : a.cols; }
  uint64_t k() const { return desc.trans_a == CUBLAS_OP_N ? a.cols : a.rows; }
  uint64_t n() const { return desc.trans_b == CUBLAS_OP_N ? b.cols : b.rows; }
  uint64_t inner_b() const { return desc.trans_b == CUBLAS_OP_N ? b.rows : b.cols; }
  bool has_bias() const { return (desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  // A number that differs for other problems, except for the address of the bias.
  uint64_t Number() const {
    uint64_t number = 1469598103934665603u;
    const auto add = [&](uint64_t value) { number = (number ^ value) * 1099511628211u; };
    for (const auto value : {desc.compute, desc.scale, desc.trans_a, desc.trans_b,
                             static_cast<int32_t>(desc.epilogue)})
      add(static_cast<uint64_t>(value));
    for (const Layout* layout : {&a, &b, &c, &d})
      for (const uint64_t value :
           {layout->rows, layout->cols, static_cast<uint64_t>(layout->ld),
            static_cast<uint64_t>(layout->stride), static_cast<uint64_t>(layout->type),
            static_cast<uint64_t>(layout->batch)})
        add(value);
    return number;
  }
  // Aborts unless the matrices lie in memory of the current device.
  static void RequireMemory(const void* data, const Layout& layout, const char* what) {
    const int64_t last = (layout.batch - 1) * layout.stride +
                         (static_cast<int64_t>(layout.cols) - 1) * layout.ld +
                         static_cast<int64_t>(layout.rows) - 1;
    int device = -1;
    cudaGetDevice(&device);
    Require(data && fake::DeviceOf(data) == device, what);
    const auto* end =
        static_cast<const char*>(data) + (last + 1) * opkit::BitSize(DTypeOf(layout.type)) / 8 - 1;
    Require(fake::DeviceOf(end) == device, what);
  }
  void Compute(double alpha, const void* as, const void* bs, double beta, const void* cs,
               void* ds) const {
    const auto at = [](const Layout& layout, int64_t batch, uint64_t row, uint64_t column) {
      return batch * layout.stride + static_cast<int64_t>(row) +
             static_cast<int64_t>(column) * layout.ld;
    };
    const opkit::DType dtype = DTypeOf(d.type), factor = DTypeOf(a.type);
    const bool turns_a = desc.trans_a != CUBLAS_OP_N, turns_b = desc.trans_b != CUBLAS_OP_N;
    for (int64_t batch = 0; batch < d.batch; ++batch)
      for (uint64_t column = 0; column < n(); ++column)
        for (uint64_t row = 0; row < m(); ++row) {
          double sum = 0;
          for (uint64_t i = 0; i < k(); ++i)
            sum +=
                fake::Load(as, turns_a ? at(a, batch, i, row) : at(a, batch, row, i), factor) *
                fake::Load(bs, turns_b ? at(b, batch, column, i) : at(b, batch, i, column), factor);
          sum *= alpha;
          if (beta != 0) sum += beta * fake::Load(cs, at(c, batch, row, column), dtype);
          if (has_bias()) sum += fake::Load(desc.bias, static_cast<int64_t>(row), dtype);
          if ((desc.epilogue & CUBLASLT_EPILOGUE_RELU) != 0 && sum < 0) sum = 0;
          if ((desc.epilogue & CUBLASLT_EPILOGUE_GELU) != 0)
            sum *= (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum))) / 2;
          fake::Store(ds, at(d, batch, row, column), dtype, sum);
        }
  }
};

}  // namespace

namespace fake {
std::vector<CublasCall> TakeCublasCalls() {
  std::lock_guard lock(state().mutex);
  return std::exchange(state().calls, {});
}
void FailCublas(int status) { state().failure = static_cast<cublasStatus_t>(status); }
void OfferCublasAlgorithms(int count) { state().algorithms = count; }
}  // namespace fake

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                                  : "CUBLAS_STATUS_FAKE";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  Require(handle, "no place for the handle");
  std::lock_guard lock(state().mutex);
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  state().handles.insert(*handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  Require(desc && size == sizeof(*desc), "a product of another size");
  Write(desc,
        Desc{kDesc, compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  auto found = Read<Desc>(desc, kDesc, "no product");
  const char* what = "an attribute of a product of another size";
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      Take(&found.trans_a, value, size, what);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      Take(&found.trans_b, value, size, what);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      Take(&found.epilogue, value, size, what);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      Take(&found.bias, value, size, what);
      break;
    default:
      Refuse("an attribute of a product that the backend does not use");
  }
  Write(desc, found);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
  Require(layout && size == sizeof(*layout), "a layout of another size");
  Write(layout, Layout{kLayout, rows, cols, ld, 0, type, 1});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t size) {
  auto found = Read<Layout>(layout, kLayout, "no layout");
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    Take(&found.batch, value, size, "a batch count of another size");
  else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    Take(&found.stride, value, size, "a stride of another size");
  else
    Refuse("an attribute of a layout that the backend does not use");
  Write(layout, found);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size) {
  Require(preference && size == sizeof(*preference), "a preference of another size");
  Write(preference,
        Preference{kPreference, 0, {256, 256, 256, 256}, CUBLASLT_REDUCTION_SCHEME_MASK});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t size) {
  auto found = Read<Preference>(preference, kPreference, "no preference");
  const int operand = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    Take(&found.workspace, value, size, "a workspace size of another size");
  else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    Take(&found.reductions, value, size, "a mask of another size");
  else if (operand >= 0 && operand < 4)
    Take(&found.alignments[operand], value, size, "an alignment of another size");
  else
    Refuse("a preference that the backend does not use");
  Write(preference, found);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  RequireHandle(handle);
  Require(requested > 0 && results && found, "no place for algorithms");
  const Problem problem(desc, a, b, c, d);
  const auto preferred = Read<Preference>(preference, kPreference, "no preference");
  Require(preferred.reductions == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
          "partial sums that may be rounded to 16 bits");
  *found = std::min(requested, state().algorithms);
  for (int number = 1; number <= *found; ++number) {
    Algo algo{kAlgo, problem.Number(), preferred.workspace < kWorkspace ? 0 : kWorkspace, {}, 1, 0};
    std::memcpy(algo.alignments, preferred.alignments, sizeof(algo.alignments));
    if (problem.has_bias()) algo.bias_alignment = AlignmentOf(problem.desc.bias);
    algo.number = number;
    cublasLtMatmulHeuristicResult_t& result = results[number - 1];
    Write(&result.algo, algo);
    result.workspaceSize = algo.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_size, cudaStream_t stream) {
  RequireHandle(handle);
  const Problem problem(desc, layout_a, layout_b, layout_c, layout_d);
  const auto chosen = Read<Algo>(algo, kAlgo, "no algorithm");
  Require(chosen.problem == problem.Number(), "an algorithm of another product");
  Require(workspace_size >= chosen.workspace, "a workspace that is too small");
  if (chosen.workspace > 0) {
    Require(AlignmentOf(workspace) >= kWorkspaceAlignment, "a workspace that is not aligned");
    Require(fake::DeviceOf(workspace) >= 0 &&
                fake::DeviceOf(static_cast<char*>(workspace) + workspace_size - 1) >= 0,
            "a workspace that is not device memory");
  }
  const void* const pointers[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    Require(AlignmentOf(pointers[i]) >= chosen.alignments[i],
            "a matrix that is aligned worse than its algorithm was told");
  Require(!problem.has_bias() || AlignmentOf(problem.desc.bias) >= chosen.bias_alignment,
          "a bias that is aligned worse than its algorithm was told");
  Problem::RequireMemory(a, problem.a, "A is not in the device's memory");
  Problem::RequireMemory(b, problem.b, "B is not in the device's memory");
  Problem::RequireMemory(c, problem.c, "C is not in the device's memory");
  Problem::RequireMemory(d, problem.d, "D is not in the device's memory");
  Require(alpha && beta, "no factors");
  {
    std::lock_guard lock(state().mutex);
    if (state().failure != CUBLAS_STATUS_SUCCESS) return state().failure;
    state().calls.push_back({static_cast<int64_t>(problem.n()), static_cast<int64_t>(problem.m()),
                             static_cast<int64_t>(problem.k()), problem.d.batch,
                             problem.desc.epilogue, chosen.number});
  }
  const bool is_double = problem.d.type == CUDA_R_64F;
  const double x =
      is_double ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double y = is_double ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  fake::Enqueue(stream, [=] {
    if (chosen.workspace > 0) std::memset(workspace, 0xff, chosen.workspace);
    problem.Compute(x, a, b, y, c, d);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
