// A symbol of which the process has one, so that the loader keeps the library. Each library of
// MXNet's makefiles has one from the C++ standard library's headers.
template <class T>
struct Unique {
  static int number;
};
template <class T>
int Unique<T>::number = 0;
int* UniqueNumber() { return &Unique<int>::number; }
