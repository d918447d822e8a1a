// OnednnPrimitive: the oneDNN primitives of an operator, one for each piece of its work, with the
// memory objects of their arguments. They are made once for the shapes of the operator and run many
// times. Used by all kernels of the "onednn" backend that call oneDNN.
#ifndef OPKIT_BACKENDS_ONEDNN_PRIMITIVE_HPP_
#define OPKIT_BACKENDS_ONEDNN_PRIMITIVE_HPP_

#include <array>
#include <span>

#include "opkit/backends/onednn/layout.hpp"
#include "opkit/engine/context_parallel_for.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A part of an operator's work: a primitive and where its arguments begin.
struct OnednnPiece {
  struct Argument {
    int kind;  // DNNL_ARG_SRC or another DNNL_ARG_ constant
    dnnl::memory::desc desc;
    int64_t at = 0;  // elements from the beginning of the tensor
  };
  dnnl::primitive primitive;
  std::vector<Argument> arguments;  // in the order of Run's pointers
  dnnl::memory::desc scratchpad;
};

// Runs pieces on the threads of the current pool. Not thread-safe, like the operator that owns it.
class OnednnPrimitive {
 public:
  // Runs the primitives on these pointers; null pointers are arguments that the node leaves out.
  // Calls make(threads) for the pieces if `version` or the number of threads has changed. Uses
  // scratch memory of `op`. Throws UnsupportedOperatorFeature if oneDNN has no kernel.
  template <class Make>
  void Run(OperatorBase& op, uint64_t version, std::initializer_list<const void*> pointers,
           Make make) {
    Run(op, version, std::span(pointers.begin(), pointers.size()), std::move(make));
  }
  template <class Make>
  void Run(OperatorBase& op, uint64_t version, std::span<const void* const> pointers, Make make) {
    try {
      const int threads = ThreadPool::Current().threads();
      if (version != version_ || threads != threads_) [[unlikely]] {
        const OnednnScope scope;
        Take(make(threads));
        version_ = version;
        threads_ = threads;
      }
      auto* scratch = static_cast<char*>(op.Scratch(scratch_bytes_));
      if (pieces_.size() == 1) return Execute(pieces_[0], pointers, scratch);
      ParallelForRange(static_cast<int64_t>(pieces_.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) Execute(pieces_[Index(i)], pointers, scratch);
      });
    } catch (const dnnl::error& error) {
      throw UnsupportedOperatorFeature(StrCat("oneDNN has no kernel for it: ", error.what()));
    }
  }

 private:
  // A primitive with the memory objects of its arguments.
  struct Piece {
    dnnl::primitive primitive;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> arguments;
    std::vector<int64_t> bytes;  // bytes from the beginning of each tensor to the piece
    int64_t scratch_at = -1;
  };

  // Replaces the pieces and plans their scratch memory.
  void Take(std::vector<OnednnPiece> made) {
    pieces_.clear();
    scratch_bytes_ = 0;
    for (OnednnPiece& from : made) {
      Piece& piece = pieces_.emplace_back();
      piece.primitive = std::move(from.primitive);
      const auto add = [&](int kind, const dnnl::memory::desc& desc) {
        piece.memories.push_back(dnnl::memory(desc, OnednnEngine(), DNNL_MEMORY_NONE));
        piece.arguments.push_back({kind, piece.memories.back().get()});
      };
      for (const OnednnPiece::Argument& argument : from.arguments) {
        add(argument.kind, argument.desc);
        const size_t size = dnnl::memory::data_type_size(argument.desc.get_data_type());
        piece.bytes.push_back(argument.at * static_cast<int64_t>(size));
      }
      if (const auto bytes = static_cast<int64_t>(from.scratchpad.get_size()); bytes > 0) {
        constexpr int64_t kLine = 64;
        add(DNNL_ARG_SCRATCHPAD, from.scratchpad);
        piece.scratch_at = scratch_bytes_;
        scratch_bytes_ += (bytes + kLine - 1) / kLine * kLine;
      }
    }
  }
  static void Execute(Piece& piece, std::span<const void* const> pointers, char* scratch) {
    const OnednnScope scope;
    size_t i = 0;
    for (const void* pointer : pointers) {
      if (!pointer) continue;
      auto* first = static_cast<char*>(const_cast<void*>(pointer)) + piece.bytes[i];
      piece.memories[i++].set_data_handle(first);
    }
    if (piece.scratch_at >= 0) piece.memories[i].set_data_handle(scratch + piece.scratch_at);
    // Not dnnl::primitive::execute(), which builds a map of the arguments in each call.
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(piece.primitive.get(), OnednnStream().get(),
                               static_cast<int>(piece.arguments.size()), piece.arguments.data()),
        "could not run");
  }

  std::vector<Piece> pieces_;
  int64_t scratch_bytes_ = 0;
  uint64_t version_ = 0;  // the version for which the pieces were made
  int threads_ = 0;
};

// Returns attributes for primitives whose scratch memory the toolkit provides, because plans share
// scratch memory among operators.
inline dnnl::primitive_attr OnednnAttributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// IsOnednnReference: true for a kernel of plain loops. IsOnednnCompiled: true for a kernel that
// oneDNN compiles for this CPU; oneDNN's kernels that call a matrix product are slower than other
// backends.
template <class Kernel>
bool IsOnednnReference(const Kernel& kernel) {
  return std::string_view(kernel.impl_info_str()).find("ref") != std::string_view::npos;
}
template <class Kernel>
bool IsOnednnCompiled(const Kernel& kernel) {
  return !IsOnednnReference(kernel) &&
         std::string_view(kernel.impl_info_str()).find("gemm") == std::string_view::npos;
}

// Returns the number of pieces for `flops` operations on `threads` threads, from 1 to `most`.
inline int64_t OnednnPieces(double flops, int threads, int64_t most) {
  constexpr double kPieceFlops = 2.5e5;  // about 2 us; waking another thread takes less than 1 us
  const auto worthwhile = static_cast<int64_t>(flops / kPieceFlops);
  return (std::max)(int64_t{1}, (std::min)({int64_t{threads}, worthwhile, most}));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_ONEDNN_PRIMITIVE_HPP_
