// Sparse tensors of libraries for MXNet. opkit has no sparse tensor type, so that a sparse value is
// several values of opkit, in this order:
//   CSR (compressed sparse rows): data [n], indices [n], indptr [rows + 1], shape [2]
//   row-sparse:                   data [n, ...], indices [n], shape [rank]
// indices, indptr and shape are int64. `indices` has the columns of a CSR value's elements, or the
// rows that a row-sparse value stores; `shape` is the shape of the whole tensor.
#ifndef OPKIT_INTEROP_MXNET_STORAGE_HPP_
#define OPKIT_INTEROP_MXNET_STORAGE_HPP_

#include "opkit/interop/mxnet/values.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The attribute of a node that chooses the storage of its inputs, for an operator that accepts
// several: "default", "row_sparse" or "csr", one for all inputs or a list with one for each.
inline constexpr std::string_view kStorageAttribute = "stypes";

inline constexpr const char* kMxnetStorageNames[] = {"default", "row_sparse", "csr"};
inline const char* ToString(MxnetStorage storage) {
  return kMxnetStorageNames[static_cast<int>(storage)];
}
// Returns the storage that a text names. Throws kInvalidArgument for another text.
inline MxnetStorage MxnetStorageOf(const std::string& text) {
  for (int i = 0; i < 3; ++i)
    if (text == kMxnetStorageNames[i]) return static_cast<MxnetStorage>(i);
  Throw(ErrorCode::kInvalidArgument, "attribute '", kStorageAttribute, "' names the storage '",
        text, "'; there are default, row_sparse and csr");
}

// Returns the number of opkit's values that make up one tensor.
inline uint64_t MxnetParts(MxnetStorage storage) {
  return storage == MxnetStorage::kCsr ? 4 : storage == MxnetStorage::kRowSparse ? 3 : 1;
}

// The storage of the inputs and outputs of one node.
struct MxnetStorages {
  std::vector<MxnetStorage> inputs, outputs;

  static uint64_t Parts(const std::vector<MxnetStorage>& tensors) {
    uint64_t parts = 0;
    for (const MxnetStorage one : tensors) parts += MxnetParts(one);
    return parts;
  }
  // True if no input and no output is sparse.
  bool is_dense() const {
    return Parts(inputs) == inputs.size() && Parts(outputs) == outputs.size();
  }
};

// A sparse tensor in its parts.
struct MxnetSparse {
  MxnetStorage storage;
  const opkit_tensor *data, *indices, *indptr, *shape;  // indptr is null for row-sparse
};

// Reads a sparse input, whose parts are the inputs of `call` from `first` on. Throws
// kInvalidArgument, with the index of the tensor, for parts that do not fit together: a library
// would read outside of their memory.
inline MxnetSparse MxnetSparseInput(const opkit_call* call, uint64_t first, MxnetStorage storage,
                                    size_t tensor) {
  const bool csr = storage == MxnetStorage::kCsr;
  const MxnetSparse made = {storage, opkit_input(call, first), opkit_input(call, first + 1),
                            csr ? opkit_input(call, first + 2) : nullptr,
                            opkit_input(call, first + (csr ? 3 : 2))};
  const auto refuse = [&](const auto&... why) {
    Throw(ErrorCode::kInvalidArgument, csr ? "CSR" : "row-sparse", " input ", tensor, ": ", why...);
  };
  const auto list = [&](const opkit_tensor* part, const char* name) {
    if (part->dtype != OPKIT_INT64 || part->rank != 1)
      refuse("its ", name, " must be int64 with one axis, found ", static_cast<DType>(part->dtype),
             " with ", part->rank);
    return std::span(static_cast<const int64_t*>(part->data), static_cast<size_t>(part->shape[0]));
  };
  const std::span<const int64_t> indices = list(made.indices, "indices"),
                                 shape = list(made.shape, "shape");
  const auto count = static_cast<int64_t>(indices.size());
  if (csr ? shape.size() != 2 : shape.empty())
    refuse("its shape has ", shape.size(), " elements, expected ", csr ? "2" : "at least 1");
  for (const int64_t extent : shape)
    if (extent < 0) refuse("its shape has the extent ", extent);
  if (csr ? made.data->rank != 1 : made.data->rank != static_cast<int32_t>(shape.size()))
    refuse("its data has ", made.data->rank, " axes, expected ", csr ? 1 : shape.size());
  if (made.data->shape[0] != count)
    refuse("it has ", count, " indices for ", made.data->shape[0], csr ? " elements" : " rows");
  const int64_t limit = csr ? shape[1] : shape[0];
  for (const int64_t index : indices)
    if (index < 0 || index >= limit)
      refuse("index ", index, " is outside of its ", limit, csr ? " columns" : " rows");
  if (!csr) {
    for (size_t axis = 1; axis < shape.size(); ++axis)
      if (made.data->shape[axis] != shape[axis])
        refuse("axis ", axis, " of its data has ", made.data->shape[axis], " elements, expected ",
               shape[axis]);
    return made;
  }
  const std::span<const int64_t> indptr = list(made.indptr, "indptr");
  if (static_cast<int64_t>(indptr.size()) != shape[0] + 1)
    refuse("its indptr has ", indptr.size(), " elements, expected ", shape[0] + 1,
           ", one more than rows");
  if (indptr.front() != 0 || indptr.back() != count || !std::ranges::is_sorted(indptr))
    refuse("its indptr must ascend from 0 to ", count, ", the number of elements");
  return made;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MXNET_STORAGE_HPP_
