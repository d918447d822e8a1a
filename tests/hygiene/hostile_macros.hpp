// Macros that platform headers leave behind in real programs, as those headers define them. The
// standard library's headers come before: they do not withstand all of these.
#ifndef OPKIT_TESTS_HYGIENE_HOSTILE_MACROS_HPP_
#define OPKIT_TESTS_HYGIENE_HOSTILE_MACROS_HPP_

// windows.h and what it includes (windef.h, winnt.h, wingdi.h, winerror.h, objbase.h, rpcndr.h).
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define interface struct
#define small char
#define hyper __int64
#define near
#define far
#define pascal __stdcall
#define cdecl
#define uuid
#define CONST const
#define VOID void
#define IN
#define OUT
#define OPTIONAL
#define THIS void
#define PURE = 0
#define TRUE 1
#define FALSE 0
#define STRICT 1
#define ERROR 0
#define NO_ERROR 0L
#define DELETE (0x00010000L)
#define IGNORE 0
#define INFINITE 0xFFFFFFFF
#define RELATIVE 2
#define ABSOLUTE 1
#define TRANSPARENT 1
#define OPAQUE 2
#define DIFFERENCE 11
#define PASSTHROUGH 19
#define ALTERNATE 1
#define CALLBACK __stdcall
#define Yield()
#define GetCurrentTime() GetTickCount()
#define CreateEvent CreateEventW
#define GetObject GetObjectW
#define GetMessage GetMessageW
#define LoadLibrary LoadLibraryW
#define StrCat StrCatW
#define CopyMemory(to, from, size) memcpy((to), (from), (size))

// X11/X.h and X11/Xlib.h.
#define None 0L
#define Bool int
#define Status int
#define True 1
#define False 0
#define Success 0
#define Always 2
#define Above 0
#define Below 1
#define Complex 0
#define CursorShape 0
#define CurrentTime 0L
#define Unsorted 0
#define KeyPress 2

// complex.h (I), math.h of SVID (DOMAIN, OVERFLOW, …), sys/param.h and sys/sysmacros.h of old.
#define I _Complex_I
#define DOMAIN 1
#define SING 2
#define OVERFLOW 3
#define UNDERFLOW 4
#define MIN(a, b) (((a) < (b)) ? (a) : (b))
#define MAX(a, b) (((a) > (b)) ? (a) : (b))
#define major(device) gnu_dev_major(device)
#define minor(device) gnu_dev_minor(device)
#define linux 1
#define unix 1

// termios.h, syslog.h, AssertMacros.h, and the logging headers of other libraries.
#define ECHO 0000010
#define B0 0000000
#define LOG_INFO 6
#define check(assertion) static_assert(false, "not ours")
#define verify(assertion) static_assert(false, "not ours")
#define require(assertion, label) static_assert(false, "not ours")
#define LOG(severity) static_assert(false, "not ours")
#define CHECK(condition) static_assert(false, "not ours")
#define ENFORCE(condition) static_assert(false, "not ours")
#define DISABLE_COPY_AND_ASSIGN(type) static_assert(false, "not ours")

#endif  // OPKIT_TESTS_HYGIENE_HOSTILE_MACROS_HPP_
