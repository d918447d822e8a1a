// Types, shapes and tensors in the form of MXNet's C functions.
#ifndef OPKIT_INTEROP_MXNET_VALUES_HPP_
#define OPKIT_INTEROP_MXNET_VALUES_HPP_

#include <memory>
#include <random>

#include "opkit/interop/mxnet/api.hpp"
#include "opkit/op/function/op_resource.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The number of dtypes that libraries have: the first of kMxnetTypes.
inline constexpr int kNumMxnetTypes = 7;

// True if libraries have the dtype.
inline bool HasMxnetType(DType dtype) {
  return std::any_of(kMxnetTypes, kMxnetTypes + kNumMxnetTypes,
                     [&](const MxnetType& type) { return type.dtype == dtype; });
}
// Returns MXNet's number of a dtype; -1 for an unknown one. Throws kUnsupported for a dtype that
// MXNet's libraries do not have.
inline int MxnetTypeOf(int32_t dtype) {
  if (dtype <= 0) return -1;
  for (int i = 0; i < kNumMxnetTypes; ++i)
    if (static_cast<int32_t>(kMxnetTypes[i].dtype) == dtype) return i;
  Throw(ErrorCode::kUnsupported, "libraries for MXNet have no dtype ", static_cast<DType>(dtype),
        "; they have float32, float64, float16, uint8, int32, int8 and int64");
}
// Returns the number in opkit_abi.h of a dtype of MXNet; -1 for an unknown one. Throws
// kInvalidArgument for a number that MXNet does not define.
inline int32_t TypeOfMxnet(int type, const char* what, size_t i) {
  if (type < -1 || type >= kNumMxnetTypes)
    Throw(ErrorCode::kInvalidArgument, "it says the dtype ", type, " for ", what, " ", i,
          ", which MXNet does not define; ", kNumMxnetTypes - 1, " is the largest");
  return type < 0 ? -1 : static_cast<int32_t>(kMxnetTypes[type].dtype);
}

using MxnetShape = std::vector<int64_t>;

// Shapes with 32-bit extents, as pointers to rows.
class MxnetShapes {
 public:
  // Throws kOutOfRange for an extent that does not fit.
  explicit MxnetShapes(const std::vector<MxnetShape>& shapes) {
    for (const MxnetShape& shape : shapes) {
      std::vector<unsigned>& row = rows_.emplace_back();
      for (const int64_t extent : shape) {
        if (extent < 0 || extent > INT32_MAX)
          Throw(ErrorCode::kOutOfRange, "an input has the extent ", extent,
                ", and libraries for MXNet have extents up to ", INT32_MAX);
        row.push_back(static_cast<unsigned>(extent));
      }
    }
    for (std::vector<unsigned>& row : rows_) {
      data_.push_back(row.data());
      ranks_.push_back(static_cast<int>(row.size()));
    }
  }
  unsigned** data() { return data_.data(); }
  int* ranks() { return ranks_.data(); }

 private:
  std::vector<std::vector<unsigned>> rows_;
  std::vector<unsigned*> data_;
  std::vector<int> ranks_;
};

// How MXNet stores a tensor (MXStorageType of lib_api.h).
enum class MxnetStorage : int { kDense = 0, kRowSparse = 1, kCsr = 2 };

// The inputs or the outputs of one run: arrays with an element for each tensor. Kept between runs,
// so that a run allocates nothing.
struct MxnetTensors {
  std::vector<const int64_t*> shapes;
  std::vector<int> ranks, types, device_ids, storage;
  std::vector<void*> data, indices, indptr;
  std::vector<size_t> versions;
  std::vector<const char*> devices;
  std::vector<int64_t> num_indices, num_indptr;

  void Clear() {
    for (auto* list : {&ranks, &types, &device_ids, &storage}) list->clear();
    for (auto* list : {&data, &indices, &indptr}) list->clear();
    for (auto* list : {&num_indices, &num_indptr}) list->clear();
    shapes.clear();
    versions.clear();
    devices.clear();
  }
  // Adds a dense tensor. `version` changes when the tensor may have been written.
  void Add(const opkit_tensor& tensor, const char* device, size_t version) {
    Add(tensor.shape, tensor.rank, MxnetTypeOf(tensor.dtype), tensor.data, device,
        tensor.device_index, version);
  }
  void Add(const int64_t* shape, int rank, int type, void* memory, const char* device,
           int device_id, size_t version) {
    shapes.push_back(shape);
    ranks.push_back(rank);
    types.push_back(type);
    data.push_back(memory);
    devices.push_back(device);
    device_ids.push_back(device_id);
    versions.push_back(version);
    storage.push_back(static_cast<int>(MxnetStorage::kDense));
    indices.push_back(nullptr);
    indptr.push_back(nullptr);
    num_indices.push_back(0);
    num_indptr.push_back(0);
  }
  int size() const { return static_cast<int>(data.size()); }
};

// MXNet's random states for the CPU: an array of 1024 std::mt19937 (the only C++ objects that cross
// the boundary). An operator's states depend on the program's seed, the operator and the number of
// its runs.
class MxnetRandomStates {
 public:
  // Returns the states for a run. Seeds the first state at every run; seeding one takes about 1 us,
  // and so the others are seeded only at the first run after a SetSeed.
  void* Seed(uint64_t run_seed) {
    const uint64_t epoch = g_random_seed.epoch.load(std::memory_order_relaxed);  // as in RunSeeds
    const bool all = !states_ || epoch != epoch_;
    if (!states_) states_ = std::make_unique<std::mt19937[]>(kCount);
    epoch_ = epoch;
    for (size_t i = 0; i < (all ? kCount : 1); ++i)
      states_[i].seed(static_cast<std::mt19937::result_type>(MixBits(run_seed + i)));
    return states_.get();
  }

 private:
  static constexpr size_t kCount = 1024;
  std::unique_ptr<std::mt19937[]> states_;
  uint64_t epoch_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MXNET_VALUES_HPP_
