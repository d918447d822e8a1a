// Files without an entry of their own, which an adapter describes.
#include "opkit/plugin/load/library_adapter.hpp"

#include "plugin/library_fixture.hpp"

namespace library_adapter_test {
using namespace opkit;
using namespace library_fixture;

int g_alive = 0;              // descriptions that exist
bool g_claims = false;        // the adapter knows libno_entry.so
std::string g_refuses;        // the reason why the adapter refuses it
int (*g_answer)() = nullptr;  // the function of the loaded file

// Describes a file with a function int no_entry_answer(void) as a library with one operator, which
// writes the answer.
struct Description final : AdaptedLibrary {
  explicit Description(detail::SharedObject& file) {
    ++g_alive;
    g_answer = reinterpret_cast<int (*)()>(file.Find("no_entry_answer"));
    kernel.size = sizeof kernel;
    kernel.device = "cpu";
    kernel.forward = [](void*, const opkit_call* call) -> opkit_status {
      *static_cast<int32_t*>(opkit_output(call, 0)->data) = g_answer();
      return OPKIT_OK;
    };
    op.size = sizeof op;
    op.name = "adapted_answer";
    op.num_kernels = 1;
    op.kernels = kernels;
    op.parse_attrs = [](const opkit_op*, const opkit_node*, int32_t* inputs, int32_t* outputs) {
      *inputs = 0;
      *outputs = 1;
      return opkit_status{OPKIT_OK};
    };
    op.infer_type = [](const opkit_op*, const opkit_node*, opkit_value*, opkit_value* outputs) {
      outputs->dtype = OPKIT_INT32;
      return opkit_status{OPKIT_OK};
    };
    op.infer_shape = [](const opkit_op*, const opkit_node*, opkit_value*, opkit_value* outputs) {
      outputs->rank = 0;
      return opkit_status{OPKIT_OK};
    };
    library.size = sizeof library;
    library.abi_major = OPKIT_ABI_MAJOR;
    library.abi_minor = OPKIT_ABI_MINOR;
    library.version = "another toolkit";
    library.num_ops = 1;
    library.ops = ops;
  }
  ~Description() override { --g_alive; }
  opkit_kernel kernel{};
  const opkit_kernel* kernels[1] = {&kernel};
  opkit_op op{};
  const opkit_op* ops[1] = {&op};
};

detail::IntrusivePtr<AdaptedLibrary> Adapt(detail::SharedObject& file, const std::string& name) {
  if (!g_claims || !file.Find("no_entry_answer")) return {};
  if (!g_refuses.empty()) Throw(ErrorCode::kUnsupported, name, g_refuses);
  return detail::MakeIntrusive<Description>(file);
}
// A second adapter, which is never asked about a file that the first one knows.
int g_asked = 0;
detail::IntrusivePtr<AdaptedLibrary> Other(detail::SharedObject&, const std::string&) {
  ++g_asked;
  return {};
}
// The first adapter knows the file during the scope.
struct Claim {
  explicit Claim(std::string refuses = {}) {
    RegisterLibraryAdapter(&Adapt);
    RegisterLibraryAdapter(&Other);
    RegisterLibraryAdapter(&Adapt);  // no effect
    g_claims = true;
    g_refuses = std::move(refuses);
    g_asked = 0;
  }
  Claim(const Claim&) = delete;
  ~Claim() { g_claims = false; }
};

TEST_CASE("an adapter describes a file without an entry, until it is unloaded") {
  const Claim claim;
  const std::string before = Registrations();
  Library library = Library::Load(PathOf("no_entry"));
  CHECK(g_alive == 1);
  CHECK(g_asked == 0);
  CHECK(library.is_adapted());
  CHECK(library.name() == "libno_entry.so");
  CHECK(library.version() == "another toolkit");
  CHECK(library.operators() == std::vector<std::string>{"adapted_answer"});
  CHECK(Invoke("adapted_answer", std::vector<Tensor>{})[0].ToVector<int32_t>() ==
        std::vector<int32_t>{42});
  CHECK(Library::Load(PathOf("no_entry")) == library);
  CHECK(g_alive == 1);  // describes a loaded file once
  CHECK(library.Unload().unmapped);
  CHECK(g_alive == 0);
  CHECK(Registrations() == before);
}

TEST_CASE("an adapter refuses a file of its kind with its own error") {
  const Claim claim(" is too old");
  const Error refused = ErrorOf([] { Library::Load(PathOf("no_entry")); });
  CHECK(refused.code() == ErrorCode::kUnsupported);
  CHECK(refused.message() == "libno_entry.so is too old");
  CHECK(g_alive == 0);
  CHECK_FALSE(IsInMap("libno_entry.so"));
}

TEST_CASE("a file with an entry is never adapted, and a file that no adapter knows is refused") {
  const Claim claim;
  Scoped known("partitioner");
  CHECK(g_asked == 0);
  CHECK_FALSE(known->is_adapted());
  g_claims = false;
  const Error refused = ErrorOf([] { Library::Load(PathOf("no_entry")); });
  CHECK(refused.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(refused.message(), "exports no opkit_library_entry"));
  CHECK(g_asked == 1);
}

}  // namespace library_adapter_test
