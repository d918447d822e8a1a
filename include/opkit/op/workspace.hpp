// Workspace: the named values that operators are bound to. A Blob holds one of any C++ type, most
// often a Tensor; its address never changes while it is in the workspace.
#ifndef OPKIT_OP_WORKSPACE_HPP_
#define OPKIT_OP_WORKSPACE_HPP_

#include <typeinfo>

#include "opkit/base/name_table.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/core/tensor.hpp"

namespace opkit::inline OPKIT_ABI {

// Owns one object of any type. Not copyable; not synchronised.
class Blob {
 public:
  Blob() = default;
  explicit Blob(std::string name) : name_(std::move(name)) {}
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;
  ~Blob() { Reset(); }

  const std::string& name() const { return name_; }
  bool empty() const { return object_ == nullptr; }
  // By name, so that it holds across shared objects.
  template <class T>
  bool IsType() const {
    return type_ == &typeid(T) || HasName(typeid(T));
  }
  // This object, and not another one that came to its place.
  template <class T>
  bool Holds(const T* object) const {
    return object_ == object && type_ == &typeid(T);
  }
  // Errors: kUninitialized when empty, kTypeMismatch for another type.
  template <class T>
  const T& Get() const {
    if (!IsType<T>()) [[unlikely]]
      WrongType(typeid(T).name());
    return *static_cast<const T*>(object_);
  }
  // The object, made anew (default constructed) when the blob holds none of this type.
  template <class T>
  T* GetMutable() {
    if (!IsType<T>()) return Emplace<T>();
    return static_cast<T*>(object_);
  }
  template <class T, class... Args>
  T* Emplace(Args&&... args) {
    T* object = new T(std::forward<Args>(args)...);
    Reset();
    object_ = object;
    type_ = &typeid(T);
    destroy_ = [](void* dead) { delete static_cast<T*>(dead); };
    return object;
  }
  void Reset() {
    if (object_) destroy_(object_);
    object_ = nullptr;
    type_ = nullptr;
  }

 private:
  // Of one that another shared object made: kept out of line, off the path of every Input().
  OPKIT_COLD bool HasName(const std::type_info& type) const { return type_ && *type_ == type; }
  [[noreturn]] OPKIT_COLD void WrongType(const char* wanted) const {
    if (!type_) Throw(ErrorCode::kUninitialized, "blob '", name_, "' is read before it is written");
    Throw(ErrorCode::kTypeMismatch, "blob '", name_, "' holds type ", type_->name(),
          ", but is read as ", wanted, " (names as the compiler mangles them)");
  }

  void* object_ = nullptr;
  const std::type_info* type_ = nullptr;
  void (*destroy_)(void*) = nullptr;
  std::string name_;
};

// Blobs by name. Not synchronised: create blobs before operators run in parallel.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // The blob of that name, made when there is none.
  Blob* CreateBlob(const std::string& name) { return &blobs_.FindOrAdd(name, name); }
  bool HasBlob(std::string_view name) const { return blobs_.Find(name) != nullptr; }
  // Null when there is none.
  Blob* FindBlob(std::string_view name) const { return blobs_.Find(name); }
  // Error (kNotFound) that names the nearest blob when there is none.
  Blob* GetBlob(const std::string& name) const {
    Blob* blob = FindBlob(name);
    if (!blob)
      Throw(ErrorCode::kNotFound, "no blob '", name, "' in the workspace",
            SuggestName(name, Blobs()));
    return blob;
  }
  // Operators bound to the blob must be gone.
  bool RemoveBlob(std::string_view name) { return blobs_.Erase(name); }
  std::vector<std::string> Blobs() const { return blobs_.Names(); }

  // The tensor of that name, made (uninitialized) when there is none.
  Tensor* CreateTensor(const std::string& name) { return CreateBlob(name)->GetMutable<Tensor>(); }
  // Errors: kNotFound, kTypeMismatch for a blob of another type, kUninitialized for an empty blob.
  Tensor* GetTensor(const std::string& name) const {
    return const_cast<Tensor*>(&GetBlob(name)->Get<Tensor>());
  }
  bool HasTensor(const std::string& name) const {
    const Blob* blob = FindBlob(name);
    return blob && blob->IsType<Tensor>();
  }

  // Place in its net of the operator that failed last; -1 when none did.
  std::atomic<int> last_failed_op_net_position{-1};

 private:
  NameTable<Blob> blobs_;
};

}  // namespace opkit

#endif  // OPKIT_OP_WORKSPACE_HPP_
