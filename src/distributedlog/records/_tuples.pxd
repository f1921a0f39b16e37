"""How the compiled kernel makes named tuples: tuples with a type of their own."""

cdef extern from "Python.h":
    object PyType_GenericAlloc(type, Py_ssize_t)
    void PyObject_GC_UnTrack(object)
    void PyTuple_SET_ITEM(object, Py_ssize_t, object)
    void Py_INCREF(object)


cdef inline void set_item(object record, Py_ssize_t index, object item) noexcept:
    Py_INCREF(item)  # the tuple owns what it is given
    PyTuple_SET_ITEM(record, index, item)
