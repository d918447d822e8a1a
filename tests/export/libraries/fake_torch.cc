// A fake of libtorch_cpu.so: the functions that the export to PyTorch calls, over plain C++ values,
// and functions for the test.
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

using Handle = void*;
using Kernel = void (*)(uint64_t*, uint64_t, uint64_t);
struct Tensor {
  std::vector<char> data;
  std::vector<int64_t> sizes, strides;
  int32_t dtype;
};
using List = std::vector<uint64_t>;

int g_alive = 0;     // tensors, lists, strings and libraries
int g_fails_in = 0;  // 1: the next of the calls that can fail fails; 0: none does
struct Library {
  std::string key;  // a domain or a dispatch key
};
struct Implementation {
  Handle library;
  Kernel kernel;
};
std::map<std::string, Handle> g_schemas;  // and their libraries
std::map<std::string, Implementation> g_kernels;

Tensor& Of(Handle handle) { return *static_cast<Tensor*>(handle); }
// A function of torch returns 1 for an error.
bool Fails() { return g_fails_in && --g_fails_in == 0; }
// Writes a result; may fail.
template <class T>
int32_t Return(T* to, T value) {
  if (Fails()) return 1;
  *to = value;
  return 0;
}
template <class T>
int32_t Delete(Handle handle) {
  --g_alive;
  delete static_cast<T*>(handle);
  return 0;
}
template <class T>
int32_t Make(Handle* out, T* made) {
  ++g_alive;
  const int32_t status = Return(out, Handle(made));
  if (status) Delete<T>(made);
  return status;
}

}  // namespace

extern "C" {

int32_t aoti_torch_library_init_fragment(const char* domain, const char*, uint32_t, Handle* out) {
  return Make(out, new Library{domain});
}
int32_t aoti_torch_library_def(Handle library, const char* schema) {
  if (Fails()) return 1;
  auto& fragment = *static_cast<Library*>(library);
  g_schemas[fragment.key + "::" + schema] = library;
  return 0;
}
int32_t aoti_torch_library_init_impl(const char*, const char* key, const char*, uint32_t,
                                     Handle* out) {
  return Make(out, new Library{key});
}
int32_t torch_library_impl(Handle library, const char* op, Kernel kernel, uint64_t version) {
  if (version != (uint64_t{2} << 56 | uint64_t{10} << 48) || Fails()) return 1;
  g_kernels[static_cast<Library*>(library)->key + " " + op] = {library, kernel};
  return 0;
}
// Undoes the registrations of the library.
int32_t aoti_torch_delete_library_object(Handle library) {
  std::erase_if(g_schemas, [&](const auto& entry) { return entry.second == library; });
  std::erase_if(g_kernels, [&](const auto& entry) { return entry.second.library == library; });
  return Delete<Library>(library);
}
int32_t aoti_torch_get_data_ptr(Handle tensor, void** out) {
  return Return(out, static_cast<void*>(Of(tensor).data.data()));
}
int32_t aoti_torch_get_dim(Handle tensor, int64_t* out) {
  return Return(out, static_cast<int64_t>(Of(tensor).sizes.size()));
}
int32_t aoti_torch_get_sizes(Handle tensor, int64_t** out) {
  return Return(out, Of(tensor).sizes.data());
}
int32_t aoti_torch_get_strides(Handle tensor, int64_t** out) {
  return Return(out, Of(tensor).strides.data());
}
int32_t aoti_torch_get_dtype(Handle tensor, int32_t* out) { return Return(out, Of(tensor).dtype); }
int32_t aoti_torch_get_device_type(Handle, int32_t* out) { return Return(out, 0); }
int32_t aoti_torch_get_device_index(Handle, int32_t* out) { return Return(out, -1); }
int32_t aoti_torch_empty_strided(int64_t rank, const int64_t* sizes, const int64_t* strides,
                                 int32_t dtype, int32_t, int32_t, Handle* out) {
  int64_t count = 1;
  for (int64_t axis = 0; axis < rank; ++axis) count += (sizes[axis] - 1) * strides[axis];
  auto* tensor = new Tensor{std::vector<char>(static_cast<size_t>(count) * 8),
                            {sizes, sizes + rank},
                            {strides, strides + rank},
                            dtype};
  return Make(out, tensor);
}
int32_t aoti_torch_delete_tensor_object(Handle tensor) { return Delete<Tensor>(tensor); }
int32_t torch_new_list_reserve_size(size_t, Handle* out) { return Make(out, new List); }
// A list that cannot be read would keep its items, so these two never fail.
int32_t torch_list_size(Handle list, size_t* out) {
  *out = static_cast<List*>(list)->size();
  return 0;
}
int32_t torch_list_get_item(Handle list, size_t i, uint64_t* out) {
  *out = static_cast<List*>(list)->at(i);
  return 0;
}
int32_t torch_list_push_back(Handle list, uint64_t value) {
  if (Fails()) return 1;
  static_cast<List*>(list)->push_back(value);
  return 0;
}
int32_t torch_delete_list(Handle list) { return Delete<List>(list); }
int32_t torch_new_string_handle(const char* data, size_t size, Handle* out) {
  return Make(out, new std::string(data, size));
}
int32_t torch_string_length(Handle string, size_t* out) {
  return Return(out, static_cast<std::string*>(string)->size());
}
int32_t torch_string_c_str(Handle string, const char** out) {
  return Return(out, static_cast<std::string*>(string)->c_str());
}
int32_t torch_delete_string(Handle string) { return Delete<std::string>(string); }
int g_loops = 0;
int32_t torch_parallel_for(int64_t begin, int64_t end, int64_t,
                           void (*body)(int64_t, int64_t, void*), void* data) {
  if (Fails()) return 1;
  ++g_loops;
  for (int64_t i = begin; i < end; ++i) body(i, i + 1, data);
  return 0;
}
int32_t torch_get_num_threads(uint32_t* out) { return Return(out, uint32_t{4}); }

int fake_torch_alive() { return g_alive; }
int fake_torch_loops() { return g_loops; }
void fake_torch_fail_in(int calls) { g_fails_in = calls; }
const char* fake_torch_schemas() {
  static std::string text;
  text.clear();
  for (const auto& [schema, library] : g_schemas) text += schema + "\n";
  return text.c_str();
}
Kernel fake_torch_kernel(const char* key_and_op) {
  const auto found = g_kernels.find(key_and_op);
  return found == g_kernels.end() ? nullptr : found->second.kernel;
}

}  // extern "C"
