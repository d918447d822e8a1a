// CublasProduct: a batch of matrix products by cuBLASLt, prepared once for its extents and kept by
// an operator. Of the backend "cublas", which computes MatMul and Gemm on CUDA.
#ifndef OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_HPP_
#define OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_HPP_

#include <cublasLt.h>

#include "opkit/backends/cuda/ops/cuda_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

inline constexpr const char* kCublasBackend = "cublas";
inline constexpr int kCublasRank = 200;
OPKIT_REGISTER_BACKEND_RANK(kCublasBackend, kCublasRank);

namespace detail {

// The scratch memory of a product. NVIDIA advises 32 MiB for a Hopper GPU, and less for the others.
inline constexpr int64_t kCublasScratch = int64_t{32} << 20;
inline constexpr int64_t kCublasAlignment = 256;  // of the workspace
inline constexpr int kCublasAlgorithms = 3;       // among which tuning measures

// Divides the scratch memory of a run into parts, which are aligned. cuBLASLt's own comes first.
class CublasParts {
 public:
  // Adds a part, and returns where it begins, in bytes.
  int64_t Add(int64_t bytes) {
    const int64_t first = end_;
    end_ += (bytes + kCublasAlignment - 1) / kCublasAlignment * kCublasAlignment;
    return first;
  }
  // Returns the bytes of all parts, with those that align the first one.
  int64_t size() const { return end_ + kCublasAlignment; }
  // Returns the first part of scratch memory of size() bytes.
  static char* Begin(void* scratch) {
    const auto first = reinterpret_cast<uintptr_t>(scratch);
    return reinterpret_cast<char*>((first + kCublasAlignment - 1) / kCublasAlignment *
                                   kCublasAlignment);
  }

 private:
  int64_t end_ = kCublasScratch;
};

// Throws an Error "<what> failed: <name of the status>" unless the call succeeded.
inline void CheckCublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  ErrorCode code = ErrorCode::kOperatorFailed;
  if (status == CUBLAS_STATUS_ALLOC_FAILED) code = ErrorCode::kOutOfMemory;
  if (status == CUBLAS_STATUS_INVALID_VALUE) code = ErrorCode::kInvalidArgument;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH)
    code = ErrorCode::kUnsupported;
  Throw(code, what, " failed: ", cublasLtGetStatusName(status));
}

// The handle for the work of one thread on one stream (CUDAStream::Slot).
struct CublasHandle {
  explicit CublasHandle(cudaStream_t) { CheckCublas(cublasLtCreate(&handle), "cublasLtCreate"); }
  cublasLtHandle_t handle = nullptr;
};

// The products D = alpha A' B' + beta C of row-major matrices A' [m, k], B' [k, n], C and D [m, n].
// A' is A, or with `trans_a` its transpose; B' likewise.
struct CublasExtents {
  DType dtype = DType::kUndefined;
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  int64_t batch = 1, stride_a = 0, stride_b = 0;  // elements to the next matrix of A and B
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  bool is_wide = false;  // D of 16-bit matrices is of float32
  friend bool operator==(const CublasExtents&, const CublasExtents&) = default;
};
// The device memory and the factors of a run. `c` is read only if beta is not 0, and may be `d`.
// `bias` is a row [n], for an epilogue that adds it.
struct CublasOperands {
  const void *a, *b, *c;
  void* d;
  const void* bias = nullptr;
  double alpha = 1, beta = 0;
};

// Not thread-safe, like the operator that owns it.
class CublasProduct {
 public:
  // Takes the algorithm of this number, from 1 to kCublasAlgorithms, of those that cuBLASLt lists,
  // the best by its estimate first; the last of them if it lists fewer.
  explicit CublasProduct(int algorithm = 1) : algorithm_(algorithm) {
    OPKIT_ASSERT(algorithm > 0 && algorithm <= kCublasAlgorithms);
  }
  // Issues the products. `scratch` returns scratch memory of kCublasScratch bytes. Throws
  // kUnsupported if cuBLASLt has no algorithm for these extents.
  template <class Scratch>
  void Run(CUDAContext& context, const CublasExtents& extents, const CublasOperands& operands,
           Scratch scratch) {
    CUDAStream& stream = context.stream();
    const cublasLtHandle_t handle = stream.Slot<CublasHandle>().handle;
    // An algorithm may need pointers that are aligned to as much as 256 bytes.
    const uint32_t alignments[] = {AlignmentOf(operands.b), AlignmentOf(operands.a),
                                   AlignmentOf(operands.beta == 0 ? operands.d : operands.c),
                                   AlignmentOf(operands.d), AlignmentOf(operands.bias)};
    if (extents != extents_ || !std::equal(alignments, alignments + 5, alignments_)) {
      extents_ = {};
      Prepare(handle, extents, operands.bias, alignments);
      std::copy(alignments, alignments + 5, alignments_);
      extents_ = extents;
    }
    if (operands.bias) Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    void* const workspace = workspace_bytes_ > 0 ? CublasParts::Begin(scratch()) : nullptr;
    const float narrow[] = {static_cast<float>(operands.alpha), static_cast<float>(operands.beta)};
    const bool is_double = extents.dtype == DType::kFloat64;
    // The matrices are row-major. cuBLASLt's are column-major, so that it sees all of them
    // transposed, and computes D^T = B'^T A'^T.
    CheckCublas(
        cublasLtMatmul(handle, &product_,
                       is_double ? static_cast<const void*>(&operands.alpha) : &narrow[0],
                       operands.b, &b_, operands.a, &a_,
                       is_double ? static_cast<const void*>(&operands.beta) : &narrow[1],
                       operands.beta == 0 ? operands.d : operands.c, &d_, operands.d, &d_, &algo_,
                       workspace, static_cast<size_t>(workspace_bytes_), stream.handle()),
        "cublasLtMatmul");
  }

 private:
  static cudaDataType_t TypeOf(DType dtype) {
    switch (dtype) {
      case DType::kFloat64:
        return CUDA_R_64F;
      case DType::kFloat16:
        return CUDA_R_16F;
      case DType::kBFloat16:
        return CUDA_R_16BF;
      default:
        return CUDA_R_32F;
    }
  }
  // Returns the largest power of two that divides the address, at most kCublasAlignment.
  static uint32_t AlignmentOf(const void* address) {
    const auto bits = reinterpret_cast<uintptr_t>(address) | kCublasAlignment;
    return static_cast<uint32_t>(bits & (~bits + 1));
  }
  template <class T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    CheckCublas(cublasLtMatmulDescSetAttribute(&product_, attribute, &value, sizeof(value)),
                "cublasLtMatmulDescSetAttribute");
  }
  // Describes `rows` rows of `columns` elements, as cuBLASLt sees them.
  static void Describe(cublasLtMatrixLayoutOpaque_t& layout, const CublasExtents& extents,
                       cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride) {
    CheckCublas(cublasLtMatrixLayoutInit(&layout, type, static_cast<uint64_t>(columns),
                                         static_cast<uint64_t>(rows), columns),
                "cublasLtMatrixLayoutInit");
    const auto set = [&]<class T>(cublasLtMatrixLayoutAttribute_t attribute, T value) {
      CheckCublas(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof(value)),
                  "cublasLtMatrixLayoutSetAttribute");
    };
    if (extents.batch == 1) return;
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(extents.batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  // Describes the products and asks cuBLASLt for its algorithms. `alignments` are those of
  // cuBLASLt's operands A, B, C and D.
  void Prepare(cublasLtHandle_t handle, const CublasExtents& extents, const void* bias,
               const uint32_t (&alignments)[5]) {
    const bool is_double = extents.dtype == DType::kFloat64;
    CheckCublas(
        cublasLtMatmulDescInit(&product_, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                               is_double ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescInit");
    Set(CUBLASLT_MATMUL_DESC_TRANSA, extents.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, extents.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, extents.epilogue);
    if (bias) Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const auto& [dtype, m, n, k, trans_a, trans_b, batch, stride_a, stride_b, epilogue, is_wide] =
        extents;
    const cudaDataType_t type = TypeOf(dtype);
    Describe(a_, extents, type, trans_a ? k : m, trans_a ? m : k, stride_a);
    Describe(b_, extents, type, trans_b ? n : k, trans_b ? k : n, stride_b);
    Describe(d_, extents, is_wide && !is_double ? CUDA_R_32F : type, m, n, m * n);

    cublasLtMatmulPreferenceOpaque_t preference;
    CheckCublas(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
    const auto prefer = [&]<class T>(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
      CheckCublas(
          cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
           static_cast<uint64_t>(kCublasScratch - kCublasAlignment));
    // Partial sums of the 16-bit types stay in float32.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[3]);
    cublasLtMatmulHeuristicResult_t results[kCublasAlgorithms] = {};
    int found = 0;
    CheckCublas(cublasLtMatmulAlgoGetHeuristic(handle, &product_, &b_, &a_, &d_, &d_, &preference,
                                               algorithm_, results, &found),
                "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0)
      Throw(ErrorCode::kUnsupported, "cuBLASLt has no algorithm for a product of ", m, " x ", k,
            " and ", k, " x ", n, " matrices of ", dtype);
    const cublasLtMatmulHeuristicResult_t& taken = results[found - 1];
    CheckCublas(taken.state, "cublasLtMatmulAlgoGetHeuristic");
    algo_ = taken.algo;
    workspace_bytes_ = static_cast<int64_t>(taken.workspaceSize);
  }

  int algorithm_;
  CublasExtents extents_;  // for which the members below are made
  uint32_t alignments_[5] = {};
  cublasLtMatmulDescOpaque_t product_;
  cublasLtMatrixLayoutOpaque_t a_, b_, d_;
  cublasLtMatmulAlgo_t algo_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_HPP_
