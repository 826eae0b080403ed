/* What of <Python.h> the callbacks of SSSL-ftlsim name; they are never called. */
typedef struct object PyObject;
#define Py_BuildValue(...) ((PyObject *)0)
#define PyEval_CallObject(f, a) ((PyObject *)0)
#define PyErr_Occurred() 0
#define PyErr_Print()
#define Py_DECREF(o)
