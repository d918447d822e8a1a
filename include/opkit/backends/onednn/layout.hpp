// The layout "onednn": tensors in the order of a dnnl::memory::desc. Images are in blocks of 8 or
// 16 channels; weights are in the order that a primitive prefers.
#ifndef OPKIT_BACKENDS_ONEDNN_LAYOUT_HPP_
#define OPKIT_BACKENDS_ONEDNN_LAYOUT_HPP_

#include "opkit/backends/onednn/threads.hpp"
#include "opkit/backends/onednn/types.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/engine/context_parallel_for.hpp"
#include "opkit/graph/plan/converters.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline const dnnl::engine& OnednnEngine() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);  // never destroyed
  return *engine;
}
// Returns this thread's stream. A stream of the CPU runs primitives on the calling thread.
inline dnnl::stream& OnednnStream() {
  thread_local dnnl::stream stream(OnednnEngine());
  return stream;
}

// Returns the descriptor of a tensor in row-major order.
inline dnnl::memory::desc RowMajorDesc(const dnnl::memory::dims& extents,
                                       OnednnType type = OnednnType::f32) {
  dnnl::memory::dims strides(extents.size(), 1);
  for (size_t i = extents.size(); i-- > 1;) strides[i - 1] = strides[i] * extents[i];
  return {extents, type, strides};
}
inline dnnl::memory::dims OnednnDims(const Shape& shape) {
  return {shape.data(), shape.data() + shape.rank()};
}

// The descriptor of a layout "onednn": oneDNN's descriptor, and how its elements map to the
// standard layout.
class OnednnDescriptor final : public Layout::Descriptor {
 public:
  // `standard` describes the same elements in the standard layout; its axes may be cut (weights of
  // groups) or exchanged (a transposed matrix). `block` is the block of channels of images, 0 for
  // other tensors. `parts` is for the gates of recurrent weights: the elements in the standard
  // layout are divided into equal parts, and `parts` has the order of these parts in `desc`. An
  // empty `parts` means the same order.
  OnednnDescriptor(dnnl::memory::desc desc, dnnl::memory::desc standard, int64_t block,
                   std::vector<int64_t> parts = {})
      : desc_(std::move(desc)),
        standard_(std::move(standard)),
        block_(block),
        parts_(std::move(parts)) {
    for (const dnnl::memory::dim extent : standard_.get_dims()) elements_ *= extent;
  }

  const dnnl::memory::desc& desc() const { return desc_; }
  const dnnl::memory::desc& standard() const { return standard_; }
  int64_t block() const { return block_; }
  const std::vector<int64_t>& parts() const { return parts_; }

  bool Equals(const Layout::Descriptor& other) const override {
    const auto& that = static_cast<const OnednnDescriptor&>(other);  // has the same layout id
    return desc_ == that.desc_ && standard_ == that.standard_ && parts_ == that.parts_;
  }
  // Returns oneDNN's name of the format, such as aBcd8b: axes from the outermost on, axes that are
  // cut into blocks in capitals, then the blocks. Returns "packed" for formats that only oneDNN
  // knows.
  std::string Describe() const override {
    if (desc_.get_format_kind() != dnnl::memory::format_kind::blocked) return "packed";
    const auto extents = desc_.get_dims(), strides = desc_.get_strides(),
               blocks = desc_.get_inner_blks(), cut = desc_.get_inner_idxs();
    std::string axes;
    for (size_t i = 0; i < extents.size(); ++i) {
      size_t at = 0;
      while (at < axes.size() && strides[Index(Axis(axes[at]))] >= strides[i]) ++at;
      const bool is_cut =
          std::find(cut.begin(), cut.end(), static_cast<dnnl::memory::dim>(i)) != cut.end();
      axes.insert(at, 1, static_cast<char>((is_cut ? 'A' : 'a') + static_cast<int>(i)));
    }
    for (size_t i = 0; i < blocks.size(); ++i)
      axes += StrCat(blocks[i], std::string(1, static_cast<char>('a' + cut[i])));
    return axes;
  }
  // Returns the number of bytes of the tensor. Throws kInvalidArgument for a shape with another
  // number of elements than the descriptor.
  int64_t Bytes(const Shape& shape, DType) const override {
    if (shape.numel() != elements_) [[unlikely]]
      Throw(ErrorCode::kInvalidArgument, "layout onednn ", Describe(), " of ", elements_,
            " elements cannot hold a tensor of shape ", shape);
    return static_cast<int64_t>(desc_.get_size());
  }

 private:
  static int Axis(char letter) { return letter >= 'a' ? letter - 'a' : letter - 'A'; }

  dnnl::memory::desc desc_, standard_;
  int64_t block_, elements_ = 1;
  std::vector<int64_t> parts_;
};

// A cache of the reorder primitives that this thread has made. A plan converts between few
// descriptors again and again.
class OnednnReorders {
 public:
  static void Run(const dnnl::memory::desc& from, const void* source, const dnnl::memory::desc& to,
                  void* target) {
    const OnednnScope scope;
    thread_local OnednnReorders made;
    dnnl::memory in(from, OnednnEngine(), const_cast<void*>(source));
    dnnl::memory out(to, OnednnEngine(), target);
    made.Find(from, to).execute(OnednnStream(), in, out);
  }

 private:
  static constexpr size_t kMost = 64;
  struct Entry {
    dnnl::memory::desc from, to;
    dnnl::reorder reorder;
  };
  dnnl::reorder& Find(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
    for (Entry& entry : entries_)
      if (entry.from == from && entry.to == to) return entry.reorder;
    if (entries_.size() == kMost) entries_.clear();
    entries_.push_back(
        {from, to,
         dnnl::reorder(dnnl::reorder::primitive_desc(OnednnEngine(), from, OnednnEngine(), to))});
    return entries_.back().reorder;
  }
  std::vector<Entry> entries_;
};

inline const OnednnDescriptor& OnednnDescriptorOf(const Layout& layout) {
  if (!layout.descriptor)
    Throw(ErrorCode::kInvalidArgument, "the layout onednn has no meaning without a descriptor");
  return static_cast<const OnednnDescriptor&>(*layout.descriptor);
}
inline void OnednnConvert(const Tensor& from, Tensor& to);
inline std::optional<Layout> OnednnLayoutFromText(std::string_view text, const Shape& shape,
                                                  DType dtype);

inline LayoutId OnednnLayoutId() {
  static const LayoutId id = [] {
    constexpr double kNsPerByte = 0.1;  // measured: one thread reads and writes 10 GB/s
    const LayoutId made = RegisterLayout({.name = "onednn",
                                          .to_standard = &OnednnConvert,
                                          .from_standard = &OnednnConvert,
                                          .has_descriptors = true,
                                          .from_text = &OnednnLayoutFromText,
                                          .ns_per_byte = kNsPerByte});
    RegisterLayoutConverter(made, made, &OnednnConvert, kNsPerByte);
    return made;
  }();
  return id;
}

// Returns the layout for a descriptor; the standard layout if `desc` equals `standard`.
inline Layout OnednnLayout(const dnnl::memory::desc& desc, const dnnl::memory::desc& standard) {
  if (desc == standard) return {};
  return {OnednnLayoutId(), MakeIntrusive<const OnednnDescriptor>(desc, standard, 0)};
}
inline dnnl::memory::desc BlockedDesc(const dnnl::memory::dims& extents, int64_t block,
                                      OnednnType type = OnednnType::f32) {
  using Tag = dnnl::memory::format_tag;
  static constexpr Tag kTags[2][4] = {{Tag::nCw8c, Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c},
                                      {Tag::nCw16c, Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c}};
  return {extents, type, kTags[block == 16][extents.size() - 2]};
}
// Returns the layout of images [N, C, D1, ..., Dn], n from 1 to 3, in blocks of channels.
inline Layout OnednnBlocked(const Shape& shape, int64_t block, OnednnType type = OnednnType::f32) {
  const dnnl::memory::dims extents = OnednnDims(shape);
  return {OnednnLayoutId(),
          MakeIntrusive<const OnednnDescriptor>(BlockedDesc(extents, block, type),
                                                RowMajorDesc(extents, type), block)};
}
inline bool CanBlock(const Shape& shape) { return shape.rank() >= 3 && shape.rank() <= 5; }
// Makes the layouts of images, in blocks of 8 or 16 channels.
inline std::optional<Layout> OnednnLayoutFromText(std::string_view text, const Shape& shape,
                                                  DType dtype) {
  if (!CanBlock(shape) || (dtype != DType::kFloat32 && dtype != DType::kBFloat16)) return {};
  for (const int64_t block : {8, 16})
    if (Layout made = OnednnBlocked(shape, block, OnednnTypeOf(dtype));
        made.descriptor->Describe() == text)
      return made;
  return {};
}
// Returns the block of channels of a layout of images; 0 for any other layout.
inline int64_t OnednnBlockOf(const Layout& layout) {
  return layout.id == OnednnLayoutId() ? OnednnDescriptorOf(layout).block() : 0;
}

// Converts images between the standard layout and blocks of channels. The work is cut by images and
// blocks of channels for the threads; a block begins at the same channel in both layouts.
inline void OnednnConvertImages(const Tensor& from, Tensor& to, int64_t block) {
  constexpr int64_t kLeastElements = 16384;  // fewest elements for one thread
  const Shape& shape = from.shape();
  const int64_t pixels = shape.NumelBetween(2, shape.rank());
  const int64_t blocks = (shape[1] + block - 1) / block;
  const int64_t threads = ThreadPool::Current().threads();
  const int64_t parts = (std::max)(
      int64_t{1}, (std::min)({threads, blocks, blocks * block * pixels / kLeastElements}));
  const bool is_blocked = !from.layout().is_standard();
  const OnednnType type = OnednnTypeOf(from.dtype());
  const int64_t size = ItemSize(from.dtype());
  const auto* source = static_cast<const char*>(from.raw_data());
  auto* target = static_cast<char*>(to.raw_mutable_data());
  ParallelForRange(shape[0] * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / parts, part = i % parts;
      const int64_t first = blocks * part / parts * block;
      const int64_t last = (std::min)(blocks * (part + 1) / parts * block, shape[1]);
      dnnl::memory::dims extents = OnednnDims(shape);
      extents[0] = 1;
      extents[1] = last - first;
      const int64_t standard = (image * shape[1] + first) * pixels * size;
      const int64_t blocked = (image * blocks * block + first) * pixels * size;
      const dnnl::memory::desc in_blocks = BlockedDesc(extents, block, type);
      const dnnl::memory::desc in_rows = RowMajorDesc(extents, type);
      if (is_blocked)
        OnednnReorders::Run(in_blocks, source + blocked, in_rows, target + standard);
      else
        OnednnReorders::Run(in_rows, source + standard, in_blocks, target + blocked);
    }
  });
}
// Copies equal parts: part i of the target is part order[i] of the source. With `back`, part
// order[i] of the target is part i of the source.
inline void CopyParts(const float* source, float* target, int64_t floats,
                      const std::vector<int64_t>& order, bool back) {
  const int64_t size = floats / static_cast<int64_t>(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t to = static_cast<int64_t>(i) * size, from = order[i] * size;
    std::copy_n(source + (back ? to : from), size, target + (back ? from : to));
  }
}
// Converts a tensor to or from the layout "onednn", or between two of its descriptors. Throws
// kUnsupported for types other than float32 and bfloat16, or if oneDNN cannot convert.
inline void OnednnConvert(const Tensor& from, Tensor& to) {
  if (from.dtype() != DType::kFloat32 && from.dtype() != DType::kBFloat16)
    Throw(ErrorCode::kUnsupported, "the layout onednn is for float32 and bfloat16, not for ", from);
  const int64_t block = OnednnBlockOf(from.layout().is_standard() ? to.layout() : from.layout());
  // If both tensors have the layout "onednn", each has its own descriptor.
  const Layout& described = to.layout().is_standard() ? from.layout() : to.layout();
  if (OnednnDescriptorOf(described).desc().get_data_type() != OnednnTypeOf(from.dtype()))
    Throw(ErrorCode::kUnsupported, ToString(described), " does not describe ", from);
  const auto desc_of = [&](const Tensor& tensor) -> const dnnl::memory::desc& {
    return tensor.layout().is_standard() ? OnednnDescriptorOf(described).standard()
                                         : OnednnDescriptorOf(tensor.layout()).desc();
  };
  try {
    if (block > 0 && (from.layout().is_standard() || to.layout().is_standard()))
      return OnednnConvertImages(from, to, block);
    const std::vector<int64_t>& parts = OnednnDescriptorOf(described).parts();
    if (parts.empty())
      return OnednnReorders::Run(desc_of(from), from.raw_data(), desc_of(to),
                                 to.raw_mutable_data());
    const auto* source = static_cast<const float*>(from.raw_data());
    auto* target = static_cast<float*>(to.raw_mutable_data());
    std::vector<float> ordered(Index(from.numel()));
    if (from.layout().is_standard()) {
      CopyParts(source, ordered.data(), from.numel(), parts, false);
      OnednnReorders::Run(desc_of(from), ordered.data(), desc_of(to), target);
    } else if (to.layout().is_standard()) {
      OnednnReorders::Run(desc_of(from), source, desc_of(to), ordered.data());
      CopyParts(ordered.data(), target, from.numel(), parts, true);
    } else {
      OnednnReorders::Run(desc_of(from), source, desc_of(to), target);  // parts in equal order
    }
  } catch (const dnnl::error& error) {
    Throw(ErrorCode::kUnsupported, "oneDNN cannot convert ", from, " to ", ToString(to.layout()),
          ": ", error.what());
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_ONEDNN_LAYOUT_HPP_
