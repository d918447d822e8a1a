// The adapter for MXNet's libraries: describes a file as an opkit_library.
#ifndef OPKIT_INTEROP_IMPL_MXNET_IPP_
#define OPKIT_INTEROP_IMPL_MXNET_IPP_

#include "opkit/interop/mxnet.hpp"
#include "opkit/interop/mxnet/instance.hpp"
#include "opkit/interop/mxnet/pass.hpp"
#include "opkit/op/boundary/host/host_table.hpp"
#include "opkit/plugin/export/exported_partitioner.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A library for MXNet and its description. The functions of the description point into it.
class MxnetLibrary final : public AdaptedLibrary {
 public:
  MxnetLibrary(SharedObject& file, const std::string& name) : path_(file.path()), api_(file, name) {
    static_cast<void>(HostTable::Global());  // makes the host that keeps the reasons of failures
    Initialize();
    ReadOperators(file);
    int line = 0;
    for (auto& partitioner : ReadMxnetPartitioners(api_)) {
      auto made = MakeIntrusive<ExportedPartitioner>(std::move(partitioner));
      made->abi.line = ++line;  // the order of a partitioner's strategies
      partitioners_.push_back(&made->abi);
      owners_.push_back(std::move(made));
    }
    for (auto& pass : ReadMxnetPasses(api_)) {
      auto made = MakeIntrusive<ExportedPass>(std::move(pass));
      passes_.push_back(&made->abi);
      owners_.push_back(std::move(made));
    }
    Describe();
  }

 private:
  static constexpr int kMxnetVersion = 10901;  // of MXNet 1.9.1, the last release

  void Initialize() {
    InContext(
        [&] { api_.Run([&] { return api_->initialize(kMxnetVersion); }); },
        [&] { return StrCat("in initialize(", kMxnetVersion, ") of library ", api_.name()); });
  }
  void ReadOperators(const SharedObject& file) {
    // A library that calls none of its own functions through the loader's tables was linked with
    // -Bsymbolic, or is one unit. It may use the states without a trace.
    const bool uses_random = file.Uses("get_cpu_rand_states") || !file.Uses("_ZN5mxnet3ext");
    const int count = api_.Count(api_->op_reg_size(), "operators");
    for (int i = 0; i < count; ++i) {
      auto made =
          MakeIntrusive<MxnetOperator>(api_, i, path_, uses_random, &MxnetInstance::MakeKernel);
      ops_.push_back(made->abi());
      owners_.push_back(std::move(made));
    }
  }
  void Describe() {
    library.size = sizeof library;
    library.abi_major = OPKIT_ABI_MAJOR;
    library.abi_minor = OPKIT_ABI_MINOR;
    version_ = StrCat("MXNet lib_api ", api_->version);
    library.version = version_.c_str();
    library.initialize = [](uint32_t, uint32_t) -> opkit_status { return OPKIT_OK; };
    library.num_ops = ops_.size();
    library.ops = ops_.data();
    library.num_partitioners = partitioners_.size();
    library.partitioners = partitioners_.data();
    library.num_passes = passes_.size();
    library.passes = passes_.data();
  }

  const std::string path_;
  const MxnetApi api_;
  std::string version_;
  RefCountedList owners_;  // keep the objects that the lists below point to
  std::vector<const opkit_op*> ops_;
  std::vector<const opkit_partitioner*> partitioners_;
  std::vector<const opkit_pass*> passes_;
};

OPKIT_INLINE IntrusivePtr<AdaptedLibrary> AdaptMxnetLibrary(SharedObject& file,
                                                            const std::string& name) {
  if (!file.Find("_opVersion") && !file.Find("_opRegSize")) return {};
  return MakeIntrusive<MxnetLibrary>(file, name);
}

OPKIT_IMAGE_LOCAL inline const bool kLoadsMxnetLibraries =
    RegisterLibraryAdapter(&AdaptMxnetLibrary);

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_IMPL_MXNET_IPP_
