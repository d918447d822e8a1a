// Workspace: the named values that operators are bound to. A Blob holds an object of any C++ type,
// most often a Tensor; its address never changes while it is in the workspace.
#ifndef OPKIT_OP_WORKSPACE_HPP_
#define OPKIT_OP_WORKSPACE_HPP_

#include <memory>
#include <typeinfo>

#include "opkit/base/index.hpp"
#include "opkit/base/name_index.hpp"
#include "opkit/core/tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Owns one object of any type. Not copyable; not synchronised.
class Blob {
 public:
  Blob() = default;
  explicit Blob(std::string name) : name_(std::move(name)) {}
  Blob(Blob&&) = delete;
  ~Blob() { Reset(); }

  const std::string& name() const { return name_; }
  bool empty() const { return !object_; }
  // True for type T. Compares the types' names if their type_info differs, as happens across shared
  // objects.
  template <class T>
  bool IsType() const {
    return type_ == &typeid(T) || HasName(typeid(T));
  }
  // True while the blob owns exactly this object; false after another object has replaced it.
  template <class T>
  bool Holds(const T* object) const {
    return object_ == object && type_ == &typeid(T);
  }
  // Returns the object. Throws kUninitialized if the blob is empty, kTypeMismatch for another type.
  template <class T>
  const T& Get() const {
    if (!IsType<T>()) [[unlikely]]
      WrongType(typeid(T).name());
    return *static_cast<const T*>(object_);
  }
  // Returns the object. If the blob holds no object of this type, first makes a default-constructed
  // object.
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
  // Compares with a type of another shared object. Out of line, so that not every Input() contains
  // the code.
  OPKIT_COLD bool HasName(const std::type_info& type) const;
  [[noreturn]] OPKIT_COLD void WrongType(const char* wanted) const;

  void* object_ = nullptr;
  const std::type_info* type_ = nullptr;
  void (*destroy_)(void*) = nullptr;
  std::string name_;
};

// The table of blobs by name. Not synchronised: create blobs before operators run in parallel.
class Workspace {
 public:
  Workspace() = default;
  Workspace(Workspace&&) = delete;
  ~Workspace();

  // Returns the blob of that name; makes it if it does not exist.
  Blob* CreateBlob(const std::string& name);
  // Adds a blob of another workspace under `name`. The other workspace must outlive this one.
  // Throws kAlreadyExists if this workspace has a blob of that name.
  void ShareBlob(const std::string& name, Blob* blob);
  bool HasBlob(std::string_view name) const { return FindBlob(name); }
  // Returns null if there is none.
  Blob* FindBlob(std::string_view name) const {
    const int number = names_.Find(name);
    return number < 0 ? nullptr : blobs_[detail::Index(number)];
  }
  // Returns the blob. Throws kNotFound, with the nearest name, if it does not exist.
  Blob* GetBlob(const std::string& name) const;
  // Returns false if the blob does not exist. Operators bound to the blob must be destroyed before.
  bool RemoveBlob(std::string_view name);
  // Returns the names of all blobs, in alphabetical order.
  std::vector<std::string> Blobs() const;

  // Returns the tensor of that name; makes it (uninitialized) if there is none.
  Tensor* CreateTensor(const std::string& name) { return CreateBlob(name)->GetMutable<Tensor>(); }
  // Throws kNotFound; kTypeMismatch for a blob of another type; kUninitialized for an empty blob.
  Tensor* GetTensor(const std::string& name) const;
  bool HasTensor(const std::string& name) const;

  // The index in its net of the operator that failed last; -1 if none did.
  std::atomic<int> last_failed_op_net_position{-1};

 private:
  detail::NameIndex names_;
  std::vector<Blob*> blobs_;     // by number; null for a removed blob
  std::vector<char> is_shared_;  // by number; true for a blob of another workspace
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/workspace.ipp"
#endif

#endif  // OPKIT_OP_WORKSPACE_HPP_
