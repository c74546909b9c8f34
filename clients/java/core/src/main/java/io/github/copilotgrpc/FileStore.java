package io.github.copilotgrpc;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Instant;
import java.util.List;

/**
 * Files with absolute paths and slashes. A missing path is a {@link java.nio.file.NoSuchFileException}. Methods run
 * in threads of the client's executor, several at once.
 */
public interface FileStore {
	/**
	 * Attributes of a file or directory.
	 *
	 * @param name last part of its path
	 * @param isDirectory whether it is a directory
	 * @param size size in bytes
	 * @param modifiedAt time of the last change
	 */
	record Info(String name, boolean isDirectory, long size, Instant modifiedAt) {}

	/**
	 * Returns a store in a directory of this machine. Paths, symbolic links included, cannot leave it.
	 *
	 * @param directory the directory; must exist
	 * @return the store
	 * @throws IOException the directory cannot be resolved
	 */
	static FileStore directory(Path directory) throws IOException {
		return new DirectoryStore(directory.toRealPath());
	}

	/**
	 * Reads a file.
	 *
	 * @param path the file
	 * @return its content
	 * @throws IOException the file cannot be read
	 */
	byte[] read(String path) throws IOException;

	/**
	 * Replaces a file's content. Its directory exists.
	 *
	 * @param path the file
	 * @param data the content
	 * @throws IOException the file cannot be written
	 */
	void write(String path, byte[] data) throws IOException;

	/**
	 * Adds to a file. Creates the file and its directories if necessary.
	 *
	 * @param path the file
	 * @param data the bytes to add
	 * @throws IOException the file cannot be written
	 */
	void append(String path, byte[] data) throws IOException;

	/**
	 * Returns the attributes of a path.
	 *
	 * @param path the path
	 * @return its attributes
	 * @throws IOException the attributes cannot be read
	 */
	Info stat(String path) throws IOException;

	/**
	 * Creates a directory.
	 *
	 * @param path the directory
	 * @param recursive also its parents, and an existing one is no error
	 * @throws IOException the directory cannot be created
	 */
	void makeDirectory(String path, boolean recursive) throws IOException;

	/**
	 * Returns the entries of a directory.
	 *
	 * @param path the directory
	 * @return its entries
	 * @throws IOException the directory cannot be read
	 */
	List<Info> list(String path) throws IOException;

	/**
	 * Moves a path.
	 *
	 * @param source the path
	 * @param target the new path
	 * @throws IOException the path cannot be moved
	 */
	void rename(String source, String target) throws IOException;

	/**
	 * Removes a file or an empty directory.
	 *
	 * @param path the path
	 * @param recursive also a directory with its content
	 * @throws IOException the path cannot be removed
	 */
	void remove(String path, boolean recursive) throws IOException;
}
